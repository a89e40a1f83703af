"""The pages of the reference: the configuration, the command line and the custom resources."""
