//! Names in addresses of pages. What is read from a folder is not trusted, so only plain characters stay.

use std::collections::BTreeSet;

/// The longest name, in characters.
const LONGEST: usize = 80;

/// Gives each text a name of its own, made of letters, digits, `-`, `_` and single dots inside of it.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// In small letters: some file systems do not tell them from large ones.
    taken: BTreeSet<String>,
}

impl Names {
    /// The name for a text. A second text that would have the same one gets a number.
    pub(crate) fn name(&mut self, text: &str) -> String {
        let plain = plain(text);
        let numbered = (2..).map(|number: u64| format!("{plain}-{number}"));
        let mut all = std::iter::once(plain.clone()).chain(numbered);
        // One of them is free, since the names are fewer than the numbers.
        all.find(|name| self.taken.insert(name.to_ascii_lowercase())).unwrap_or(plain)
    }
}

fn plain(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().take(LONGEST) {
        match c {
            c if c.is_ascii_alphanumeric() || c == '_' => name.push(c),
            '.' if !name.is_empty() && !name.ends_with(['.', '-']) => name.push('.'),
            _ if name.is_empty() || name.ends_with(['-', '.']) => {}
            _ => name.push('-'),
        }
    }
    let name = name.trim_end_matches(['.', '-']);
    // The index of a folder has a name of its own.
    if name.is_empty() || name.eq_ignore_ascii_case("index") { format!("x{name}") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_nothing_that_an_address_or_a_file_system_knows() {
        let mut names = Names::default();
        let long = "a".repeat(1000);
        for text in
            ["..", "/", "../../etc/passwd", "a/..//b", "<script>", "a%2e%2e", "", "index", "ä", &long, "a\0b"]
        {
            let name = names.name(text);
            assert!(!name.is_empty() && name.len() <= LONGEST + 4, "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{name}");
            assert!(!name.starts_with('.') && !name.contains("..") && !name.ends_with('.'), "{name}");
            assert_ne!(name, "index");
        }
    }

    #[test]
    fn no_two_texts_share_a_name() {
        let mut names = Names::default();
        assert_eq!(
            ["e1000@6.1", "e1000-6.1", "E1000/6.1"].map(|text| names.name(text)),
            ["e1000-6.1", "e1000-6.1-2", "E1000-6.1-3"]
        );
    }
}
