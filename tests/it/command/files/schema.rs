//! The JSON output of the command matches `docs/schema.json`: every key of either is in the other.

use std::collections::BTreeSet;
use std::fs;

use cachealloc_tests::{Run, root};
use serde_json::{Value, json};

use super::sites::{planted, run, said};
use crate::command::cachealloc;
use crate::command::live::busy;

/// Checker for the part of JSON Schema that the schema uses. Collects the errors of a value, and
/// the properties of the schema that occurred.
struct Checker<'a> {
    all: &'a Value,
    wrong: Vec<String>,
    met: BTreeSet<String>,
}

impl<'a> Checker<'a> {
    fn check(&mut self, value: &Value, schema: &'a Value, at: &str) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.strip_prefix("#/$defs/").expect("a definition of ours");
            return self.check(value, &self.all["$defs"][name], at);
        }
        let is = |wanted: &Value| match wanted.as_str().expect("the name of a type") {
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "object" => value.is_object(),
            "array" => value.is_array(),
            other => panic!("{other} is no type"),
        };
        let fits = match (&schema["type"], &schema["const"], &schema["enum"]) {
            (Value::Null, Value::Null, Value::Array(words)) => words.contains(value),
            (Value::Null, number, _) => value == number,
            (Value::Array(types), ..) => types.iter().any(is),
            (one, ..) => is(one),
        };
        if !fits {
            self.wrong.push(format!("{at} is {value}"));
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            self.check(item, &schema["items"], &format!("{at}[{index}]"));
        }
        let Some(object) = value.as_object() else { return };
        for key in schema["required"].as_array().into_iter().flatten() {
            if !object.contains_key(key.as_str().expect("a key")) {
                self.wrong.push(format!("{at} lacks {key}"));
            }
        }
        let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        for (key, value) in object {
            let inside = format!("{at}.{key}");
            if !key.chars().all(|letter| is_plain(letter) || matches!(letter, '_' | '.')) {
                self.wrong.push(format!("{inside} is no key"));
            }
            match (schema["properties"].get(key), schema.get("additionalProperties")) {
                (Some(known), _) => {
                    self.met.insert(format!("{:p}", known));
                    self.check(value, known, &inside);
                }
                (None, Some(any)) => self.check(value, any, &inside),
                (None, None) => self.wrong.push(format!("{inside} is not in the schema")),
            }
        }
    }

    /// Collects the properties of this schema, wherever in it.
    fn properties(schema: &Value, at: &str, all: &mut Vec<(String, String)>) {
        let own = schema["properties"].as_object().into_iter().flatten();
        all.extend(own.map(|(key, known)| (format!("{known:p}"), format!("{at}.{key}"))));
        let parts = schema.as_object().into_iter().flatten();
        parts.for_each(|(key, part)| Self::properties(part, &format!("{at}.{key}"), all));
    }
}

fn schema() -> Value {
    let text = fs::read_to_string(root().join("docs/schema.json")).expect("the schema");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn json_is_what_the_schema_says() {
    let schema = schema();
    let mut checker = Checker { all: &schema, wrong: Vec::new(), met: BTreeSet::new() };
    let mut check = |name: &str, text: &str| {
        let value: Value = serde_json::from_str(text).expect("it is JSON");
        checker.check(&value, &schema["$defs"][name], name);
    };
    let place = planted();
    for by in ["live", "peak", "allocated", "count", "temporary"] {
        check("top_sites", &said(&place, &format!("top-sites 2.pickle 5.pickle --json --by {by}")));
    }
    check("top_sites", &said(&place, "top-sites 2.pickle --json --group range"));
    for group in ["stack", "range"] {
        check("diff", &said(&place, &format!("diff 2.pickle 5.pickle --json --group {group}")));
    }
    let phases = Run::c("ranges.c").arg("phases").conf("record:all,snapshot:r.pickle,log:quiet");
    place.run(&phases).ok();
    check("findings", &said(&place, "findings 5.pickle r.pickle --json"));
    let models = said(&place, "convert 5.pickle --to json -o -");
    let model: Value = serde_json::from_str(&models).expect("it is JSON");
    let device = &model["devices"][0];
    let of = |at: usize| device["entries"][at]["address"].as_u64().expect("a number");
    for address in [of(1), of(device["entries"].as_array().expect("a list").len() - 2)] {
        check("find", &said(&place, &format!("find {address:#x} 5.pickle --json")));
    }
    check("find", &run(&place, "find 10 5.pickle --json").stdout);
    check("fit", &said(&place, "fit 2.pickle --json"));
    check("fit", &said(&place, "fit 5.pickle --json"));
    check("explain", &said(&place, "explain 5.pickle --json"));
    for record in ["all", "off"] {
        let running = busy(&format!("record:{record},snapshot:/dev/null/no,log:quiet"));
        let process = running.child.id();
        let print = |arguments: &str| cachealloc(arguments).output().ok().stdout;
        check("explain", &print(&format!("explain --json {process}")));
        check("stats", &print(&format!("stats --json {process}")));
        check("top", &print(&format!("top --json {process}")));
        // Other programs may run under other versions.
        let mut all: Value = serde_json::from_str(&print("top --json")).expect("it is JSON");
        let all_of_list = all.as_array_mut().expect("a list");
        all_of_list.retain(|one| one["process"] == process);
        assert_eq!(all_of_list.len(), 1);
        check("top", &all.to_string());
        assert_eq!(running.end(), Some(0));
    }
    assert!(checker.wrong.is_empty(), "{:#?}", checker.wrong);
    // Every property of the schema occurs in some output.
    let mut promised = Vec::new();
    Checker::properties(&schema, "", &mut promised);
    assert!(promised.len() > 80, "{}", promised.len());
    promised.retain(|(known, _)| !checker.met.contains(known));
    assert!(promised.is_empty(), "{promised:#?}");
}

/// The checker itself finds errors.
#[test]
fn keys_missing_from_the_schema_are_found() {
    let all = schema();
    let wrong = |name: &str, value: Value| {
        let mut checker = Checker { all: &all, wrong: Vec::new(), met: BTreeSet::new() };
        checker.check(&value, &all["$defs"][name], "it");
        checker.wrong.sort();
        checker.wrong
    };
    assert_eq!(wrong("frame", json!({"name": "a", "filename": "b", "line": 1})), [""; 0]);
    for (value, wanted) in [
        (json!({"name": "a", "filename": "b", "line": "1"}), "it.line is \"1\""),
        (json!({"name": "a"}), "it lacks \"filename\""),
        (json!({"name": "a", "filename": "b", "lines": 1}), "it.lines is not in the schema"),
        (json!([]), "it is []"),
    ] {
        assert_eq!(wrong("frame", value), [wanted]);
    }
    assert_eq!(wrong("numbers", json!({"A b": 1})), ["it.A b is no key"]);
    assert_eq!(wrong("timed", json!({"count": 1, "nanoseconds": null})), [""; 0]);
    let version = json!({"schema_version": 2, "by": "all", "devices": [], "sites": []});
    assert_eq!(wrong("top_sites", version), ["it.by is \"all\"", "it.schema_version is 2"]);
}
