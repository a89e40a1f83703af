package kube_sync.metadata.syntax_test

import data.kube_sync.metadata.syntax

long(n) := concat("", ["a" | some _ in numbers.range(1, n)])

test_keys_are_qualified_names if {
	every key in ["a", "A", "a.b-c_d", "example.com/a", long(63), "a/b"] { syntax.key_faults(key) == set() }
	every key in ["", "/a", "a/", "a/b/c", "-a", "a b", long(64), "Example.com/a", "a_b/c", 1, null] {
		count(syntax.key_faults(key)) == 1
	}
	count(syntax.key_faults(concat("/", [long(254), "a"]))) == 1
}

test_annotation_keys_may_have_upper_case if {
	syntax.key_faults_of("annotation", "Example.com/A") == set()
	count(syntax.key_faults_of("label", "Example.com/A")) == 1
	count(syntax.key_faults_of("annotation", 1)) == 1
	count(syntax.key_faults_of("annotation", "")) == 1
}

test_values_of_labels_are_short_names if {
	every value in ["", "a", "1.0-b_C"] { syntax.value_faults_of("label", value) == set() }
	every value in ["a b", "-", long(64), 1, true] { count(syntax.value_faults_of("label", value)) == 1 }
}

test_values_of_annotations_are_any_string if {
	every value in ["", "a b", "ü", long(300)] { syntax.value_faults_of("annotation", value) == set() }
	count(syntax.value_faults_of("annotation", 1)) == 1
}
