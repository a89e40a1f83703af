# METADATA
# title: Policy packs
# description: Each pack is a package below this one, which keeps data of others away from there
package placement.packs
