# METADATA
# title: Quantities
# description: |
#   Amounts of resources, read as Kubernetes reads them (apimachinery, pkg/api/resource), as exact
#   integers of 10^-9 units. No division and no float takes part: both lose digits in OPA.
#
#   What Kubernetes cannot represent is treated as there: finer amounts are rounded up in magnitude
#   to 10^-9, and amounts with a binary suffix stop at 2^63 - 1 units.
package kube_sync.quantity

_pattern := `^([+-]?)([0-9]*)(\.[0-9]*)?(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)$`

_decimal := {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

_binary := {
	"Ki": 1024,
	"Mi": 1048576,
	"Gi": 1073741824,
	"Ti": 1099511627776,
	"Pi": 1125899906842624,
	"Ei": 1152921504606846976,
}

_largest_binary := 9223372036854775807 * 1000000000

# Whoever writes more than this makes work, not amounts; OPA itself reads no number above 1e308.
_longest := 256

_highest := 290

# METADATA
# description: |
#   The quantity in units of 10^-9; undefined for what is none, and for those of more than 256
#   characters or of an exponent above 290, which nobody has but which take long to calculate with.
#   A string may have white space around it, a number is read as it is written, null is zero.
nano(value) := _nano(trim_space(value)) if is_string(value)

nano(value) := _nano(json.marshal(value)) if is_number(value)

nano(null) := 0

_nano(text) := _signed(parts[1], _magnitude(parts[2], trim_prefix(parts[3], "."), parts[4])) if {
	text != ""
	count(text) <= _longest
	[parts] := regex.find_all_string_submatch_n(_pattern, text, 1)
}

_signed("-", magnitude) := 0 - magnitude

_signed(sign, magnitude) := magnitude if sign != "-"

_magnitude(whole, fraction, suffix) := min([amount, _largest_binary]) if {
	amount := _scaled(_integer(concat("", [whole, fraction])) * _binary[suffix], 9 - count(fraction))
}

_magnitude(whole, fraction, suffix) := amount if {
	not _binary[suffix]
	exponent := _exponent(suffix)
	_written(whole, fraction, exponent)
	amount := _scaled(_integer(concat("", [whole, fraction])), (9 + exponent) - count(fraction))
}

# Kubernetes reads a suffix without a digit as zero, unless the exponent is too small for it.
_written(whole, fraction, _) if concat("", [whole, fraction]) != ""

_written("", "", exponent) if exponent >= -9

_integer(digits) := to_number(significant) if {
	significant := trim_left(digits, "0")
	significant != ""
}

_integer(digits) := 0 if trim_left(digits, "0") == ""

_exponent(suffix) := _decimal[suffix]

_exponent(suffix) := _power(substring(suffix, 1, 1), trim_left(substring(suffix, 1, -1), "+-0")) if {
	not _decimal[suffix]
}

_power("-", digits) := 0 - _small(digits)

_power(sign, digits) := _integer(digits) if {
	sign != "-"
	count(digits) <= 3
	_integer(digits) <= _highest
}

_small(digits) := _integer(digits) if count(digits) <= 3

# Far below what any number of digits here can lift above the smallest amount.
_small(digits) := 1000 if {
	count(digits) > 3
	count(digits) <= 9
}

_scaled(integer, exponent) := integer * to_number(sprintf("1e%d", [exponent])) if exponent >= 0

_scaled(integer, exponent) := _rounded_up(format_int(integer, 10), 0 - exponent) if exponent < 0

_rounded_up(digits, dropped) := _integer(kept) + _any(substring(digits, count(kept), -1)) if {
	kept := substring(digits, 0, max([0, count(digits) - dropped]))
}

_any(digits) := 1 if trim_left(digits, "0") != ""

_any(digits) := 0 if trim_left(digits, "0") == ""
