//! Which guarded modules the runtime admits in a guest: those that its image contains.

use crate::error::Result;
use crate::kernel::modules::guarded_name;
use crate::parser::Parser;
use guardrail_abi as abi;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The line of a certified module, without a signature, in the file that the runtime reads: its SHA-256.
pub fn line(module: &[u8]) -> String {
    format!("{:x}\n", Sha256::digest(module))
}

/// The name of the file with the lines of a module's certified versions.
pub fn file(module: &str) -> String {
    abi::certified(module)
}

/// The folders of the files that admit modules, parents first.
pub fn folders() -> [String; 3] {
    ["lib".to_owned(), "lib/firmware".to_owned(), format!("lib/firmware/{}", abi::FIRMWARE)]
}

/// The files that admit the guarded ones of these modules, by their paths in a guest.
pub fn files<'a>(
    parser: &Parser,
    modules: impl Iterator<Item = &'a [u8]>,
) -> Result<BTreeMap<String, String>> {
    let mut lines: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for module in modules {
        if let Some(name) = guarded_name(parser, module)? {
            lines.entry(name).or_default().insert(line(module));
        }
    }
    let [.., folder] = folders();
    let listed = |(name, lines): (String, BTreeSet<String>)| {
        (format!("{folder}/{}", file(&name)), lines.into_iter().collect())
    };
    Ok(lines.into_iter().map(listed).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_is_what_sha256sum_prints_first() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n";
        assert_eq!(super::line(b""), empty);
    }
}
