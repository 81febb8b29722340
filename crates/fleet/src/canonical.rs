//! The canonical form of JSON, and digests over it: what is equal has the same bytes.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// A value with the keys of each object in order, and without spaces. Numbers are written as JSON has them, so that only whole
/// numbers are safe to compare.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            out.push('{');
            for (place, name) in names.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write(&fields[name], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

/// The SHA-256 of several parts, each with its length before it, as 64 hexadecimal digits.
pub fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_fields_does_not_matter() {
        let one: Value = serde_json::from_str(r#"{"b": [1, {"y": null, "x": "\n"}], "a": true}"#).unwrap();
        let other = json!({"a": true, "b": [1, {"x": "\n", "y": null}]});
        assert_eq!(canonical(&one), r#"{"a":true,"b":[1,{"x":"\n","y":null}]}"#);
        assert_eq!(canonical(&one), canonical(&other));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_eq!(digest(&[b""]).len(), 64);
    }
}
