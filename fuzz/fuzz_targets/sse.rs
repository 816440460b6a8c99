#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taskgate_fuzz::sse::check(input));
