//! The bugs of the zoo, as their folders describe them.

use crate::root;
use guardrail_host::zoo;
use serde_json::Value;

/// A driver of the zoo with a planted bug.
pub struct Planted {
    /// The name of its folder.
    pub name: String,
    /// Its `expect.json`.
    pub expect: Value,
    source: String,
}

impl Planted {
    /// All of the zoo, in the order of their names.
    pub fn all() -> Vec<Planted> {
        let drivers = zoo::drivers(&root().join("zoo")).expect("the zoo can be listed");
        let planted = drivers.into_iter().filter_map(|(name, folder)| {
            let text = std::fs::read_to_string(folder.join("expect.json")).ok()?;
            let source = folder.join(format!("{}.c", name.replace('-', "_")));
            let source = std::fs::read_to_string(source).expect("the source is there");
            Some(Planted { name, expect: serde_json::from_str(&text).expect("expect.json is JSON"), source })
        });
        planted.collect()
    }

    /// A member of `expect.json` that is text.
    pub fn word(&self, member: &str) -> Option<String> {
        self.expect[member].as_str().map(str::to_owned)
    }

    /// The line of the source, from 1, with the marker that this member of `expect.json` holds.
    pub fn line(&self, member: &str) -> Option<u64> {
        let marker = self.expect[member].as_str()?;
        let line = self.source.lines().position(|line| line.contains(marker));
        Some(line.expect("the marker is there") as u64 + 1)
    }
}
