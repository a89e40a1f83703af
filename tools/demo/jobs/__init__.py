"""The demo of MultiKueue: jobs that go where a policy says."""
