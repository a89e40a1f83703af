package kube_sync.quantity_test

import data.kube_sync.quantity

unit := 1000000000

test_suffixes_are_decimal_and_binary if {
	amounts := {
		"1n": 1, "1u": 1000, "1m": 1000000, "1": unit, "1k": unit * 1000, "1M": unit * 1000000,
		"1G": unit * 1000000000, "1T": (unit * 1000000000) * 1000, "1P": (unit * 1000000000) * 1000000,
		"1E": (unit * 1000000000) * 1000000000, "1Ki": unit * 1024, "1Mi": unit * 1048576,
		"1Gi": unit * 1073741824, "1Ti": unit * 1099511627776, "1Pi": unit * 1125899906842624,
		"1Ei": unit * 1152921504606846976,
	}
	every text, amount in amounts { quantity.nano(text) == amount }
}

test_spellings_of_one_amount_are_equal if {
	every text in ["128Mi", "134217728", "134217728000m", "0.125Gi", "131072Ki", "134217.728k"] {
		quantity.nano(text) == quantity.nano("128Mi")
	}
	every text in ["1", "1.", "1.0", "+1", "001", "1000m", "1e0", "10E-1", " 1 "] {
		quantity.nano(text) == unit
	}
	quantity.nano(".5") == quantity.nano("500m")
	quantity.nano("1e3") == quantity.nano("1k")
	quantity.nano("1E+3") == quantity.nano("1k")
}

test_large_amounts_are_exact if {
	quantity.nano("99999999999999999999E") - quantity.nano("99999999999999999998E") == quantity.nano("1E")
	quantity.nano("9223372036854775807") < quantity.nano("9223372036854775808")
}

test_finer_than_nano_is_rounded_up_in_magnitude if {
	quantity.nano("0.1n") == 1
	quantity.nano("1.1n") == 2
	quantity.nano("-1.1n") == -2
	quantity.nano("1e-999999999") == 1
	quantity.nano("0.0000000001Ki") == 103
	quantity.nano("1.0000000000") == unit
}

test_binary_amounts_stop_at_the_largest_integer if {
	every text in ["8Ei", "9Ei", "9223372036854775807"] {
		quantity.nano(text) == 9223372036854775807 * unit
	}
	quantity.nano("-9Ei") == 0 - (9223372036854775807 * unit)
}

test_numbers_are_read_as_they_are_written if {
	quantity.nano(1) == unit
	quantity.nano(0.5) == quantity.nano("500m")
	quantity.nano(1e3) == quantity.nano("1k")
	quantity.nano(-2) == quantity.nano("-2")
	quantity.nano(null) == 0
}

test_suffix_without_a_digit_is_zero if {
	every text in ["m", "Ki", "-", "+", ".", "e3", "e-9", "0e-10"] { quantity.nano(text) == 0 }
	not quantity.nano("e-10")
}

test_what_is_no_quantity_is_undefined if {
	every text in ["", " ", "1K", "1mi", "1ki", "1 1", "1.1.1", "--1", "1e", "e", "1ei", "0x1", "1_0", "1,5"] {
		not quantity.nano(text)
	}
	every value in [true, [], {}] { not quantity.nano(value) }
}

test_amounts_that_nobody_has_are_undefined if {
	quantity.nano("1e290") > quantity.nano("1e289")
	not quantity.nano("1e291")
	not quantity.nano("1e1000")
	not quantity.nano("1e-9999999999")
	not quantity.nano(sprintf("%0257d", [1]))
}
