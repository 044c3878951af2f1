//! Amounts at the edges of their units, and JSON in both layouts.

use cachealloc_text::{Json, age, bytes, count, per_second, plural, share, size, time};

/// The page of a report formats the same amounts: `scripts/report/test.py` checks it with this
/// list.
#[test]
fn amounts_are_written_in_one_way() {
    let lines = include_str!("amounts.txt").lines();
    for line in lines {
        let [kind, number, wanted] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three fields: {line}");
        };
        let number: u64 = number.parse().expect("a number");
        let text = match kind {
            "bytes" => bytes(number),
            "count" => count(number),
            "blocks" => plural(number, "block"),
            "time of us" => time(number * 1_000),
            "share of 1000000" => share(number as f64 / 1e6),
            _ => panic!("{line}"),
        };
        assert_eq!(text, wanted, "{line}");
    }
    assert_eq!(bytes(u64::MAX), "16384 PiB");
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
fn rates_and_times_below_a_microsecond() {
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
    assert_eq!([0, 999, 1_999].map(time), ["0 us", "< 1 us", "1 us"]);
}

#[test]
fn ages() {
    for (seconds, wanted) in [
        (0, "0 s"),
        (89, "89 s"),
        (398, "6 min"),
        (5_399, "89 min"),
        (7_200, "2 h"),
        (200_000, "2 days"),
    ] {
        assert_eq!(age(seconds), wanted);
    }
}

#[test]
fn sizes() {
    for (text, wanted) in [
        ("0", Some(0)),
        ("0M", Some(0)),
        ("64K", Some(64 << 10)),
        ("1.5GiB", Some(3 << 29)),
        ("4g", Some(4 << 30)),
        ("24GB", Some(24 << 30)),
        ("24 GB", Some(24 << 30)),
        ("4096B", Some(4096)),
        (" 1T ", Some(1 << 40)),
    ] {
        assert_eq!(size(text), wanted, "{text}");
    }
    for text in ["", "4", "G", "4X", "-4G", "1e3M", "infM", "0x1G", "1.2.3M", "4 G B", "4GBB"] {
        assert_eq!(size(text), None, "{text}");
    }
}
