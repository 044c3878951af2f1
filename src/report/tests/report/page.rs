//! Reads a page independently of the page's own code.

use std::collections::BTreeMap;
use std::io::Read as _;

use cachealloc_report::{FitWhen, Input};
use flate2::read::DeflateDecoder;
use serde_json::{Value, json};

pub fn written(inputs: &[Input]) -> String {
    written_with(inputs, FitWhen::Short)
}

pub fn written_with(inputs: &[Input], fit: FitWhen) -> String {
    let mut out = Vec::new();
    cachealloc_report::write(inputs, fit, &mut out).expect("memory takes it");
    String::from_utf8(out).expect("the page is UTF-8")
}

/// Returns the contents of the element with this id.
pub fn element<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("id=\"{id}\">")).expect("the page has the element");
    let end = rest.find("</script>").expect("it is closed");
    &rest[..end]
}

pub fn head(page: &str) -> Value {
    serde_json::from_str(element(page, "head")).expect("the head is JSON")
}

/// Returns all columns, by name.
pub fn columns(page: &str) -> BTreeMap<String, Value> {
    let mut raw = Vec::new();
    let bytes = from_base64(element(page, "blob"));
    let read = DeflateDecoder::new(&bytes[..]).read_to_end(&mut raw);
    read.expect("the columns inflate");
    let mut rest = raw.as_slice();
    let mut columns = BTreeMap::new();
    for column in head(page)["columns"].as_array().expect("a list") {
        let bytes = column["bytes"].as_u64().expect("a number") as usize;
        let (own, others) = rest.split_at(bytes);
        rest = others;
        let name = column["name"].as_str().expect("a text").to_string();
        columns.insert(name, column_value(column, own));
    }
    assert_eq!(rest.len(), 0, "nothing comes after the last column");
    columns
}

fn column_value(column: &Value, bytes: &[u8]) -> Value {
    let kind = column["kind"].as_str().expect("a text");
    if kind == "text" {
        return serde_json::from_slice(bytes).expect("texts are JSON");
    }
    let mut numbers = Vec::new();
    let (mut number, mut shift, mut before) = (0u64, 0, 0);
    for &byte in bytes {
        number |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            numbers.push(match kind {
                "uint" => json!(number),
                "int" => json!((number >> 1) as i64 ^ -((number & 1) as i64)),
                "delta" => {
                    before += number;
                    json!(before)
                }
                other => panic!("a column of kind {other}"),
            });
            (number, shift) = (0, 0);
        }
    }
    assert_eq!(numbers.len() as u64, column["count"].as_u64().expect("a number"));
    Value::Array(numbers)
}

fn from_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes().filter(|&letter| letter != b'=') {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            other => panic!("{other} is no letter of base64"),
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}
