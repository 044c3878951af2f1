//! Amounts at the edges of their units, and JSON in both layouts.

use cachealloc_text::{Json, bytes, count, per_second, plural, share, time};

#[test]
fn amounts_have_three_digits_and_a_unit() {
    for (number, wanted) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (3 << 20, "3.00 MiB"),
        (22 << 20, "22.0 MiB"),
        (141 << 30, "141 GiB"),
        (1023 << 20, "1023 MiB"),
        ((1 << 30) - 1, "1.00 GiB"),
        (u64::MAX, "16384 PiB"),
    ] {
        assert_eq!(bytes(number), wanted);
    }
    assert_eq!(
        [0, 7, 1234, 1234567, 100000].map(count),
        ["0", "7", "1,234", "1,234,567", "100,000"]
    );
    assert_eq!([1, 2000].map(|number| plural(number, "block")), ["1 block", "2,000 blocks"]);
}

#[test]
fn json_is_one_line_or_one_line_for_each_item() {
    let write = |mut json: Json<&mut Vec<u8>>| {
        json.object(|json| {
            json.key("a")?.list([1, 2], |json, number| json.number(number))?;
            json.key("b")?.object(|_| Ok(()))?;
            json.key("c")?.text("\u{1b}\"")
        })
        .expect("written to memory");
    };
    let (mut dense, mut lines) = (Vec::new(), Vec::new());
    write(Json::new(&mut dense));
    write(Json::lines(&mut lines));
    assert_eq!(dense, br#"{"a":[1,2],"b":{},"c":"\u001b\""}"#);
    let wanted = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {},\n  \"c\": \"\\u001b\\\"\"\n}";
    assert_eq!(String::from_utf8_lossy(&lines), wanted);
}

#[test]
fn rates_shares_and_times() {
    for (rate, wanted) in [
        (0.0, "0"),
        (5.0, "5.00"),
        (150.0, "150"),
        (12_345.0, "12.3 k"),
        (2e9, "2.00 G"),
        (5e12, "5000 G"),
    ] {
        assert_eq!(per_second(rate), wanted);
    }
    assert_eq!([1.0, 0.999_999, 0.0].map(share), ["100.00 %", "99.99 %", "0.00 %"]);
    for (nanoseconds, wanted) in [
        (0, "0 us"),
        (999, "< 1 us"),
        (1_999, "1 us"),
        (999_999, "999 us"),
        (1_250_000, "1.25 ms"),
        (160_000_000, "160 ms"),
        (75_000_000_000, "75.0 s"),
        (599_000_000_000, "599 s"),
        (1_200_000_000_000, "20 min"),
    ] {
        assert_eq!(time(nanoseconds), wanted);
    }
}
