//! What is known about functions of the kernel: which sleep, which allocate, which read the time.

use guardrail_knowledge::table::Kind;
use std::collections::{HashMap, HashSet};

/// When a function sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeps {
    /// It may at any call.
    Always,
    /// Where the argument with this index, gfp flags, allows direct reclaim.
    Flags(usize),
}

/// What new memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocates {
    /// Zeros, or anything.
    Zeroed(bool),
    /// Zeros where the argument with this index, gfp flags, says so.
    ByFlags(usize),
}

/// What the files under `knowledge/` say, as far as this crate uses it.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    sleeps: HashMap<String, Sleeps>,
    allocates: HashMap<String, Allocates>,
    clocks: HashSet<String>,
    drains: HashSet<String>,
    cookies: HashSet<String>,
}

/// The lines for this crate alone.
const TEXT: &str = include_str!("../../../knowledge/verify.txt");

/// The name of a function without the mark that the kernel puts behind those that allocate.
pub fn plain(name: &str) -> &str {
    name.strip_suffix("_noprof").unwrap_or(name)
}

impl Knowledge {
    /// Reads all of it. A line that makes no sense is a mistake in this repository; a test reads all.
    pub fn stock() -> Knowledge {
        let mut all = Knowledge::default();
        for row in Kind::Locks.rows() {
            for effect in row.effects.iter().filter(|effect| effect.verb() == "sleeps") {
                let flags = effect.word(1).and_then(|word| row.params.iter().position(|name| *name == word));
                let sleeps = flags.map_or(Sleeps::Always, Sleeps::Flags);
                all.sleeps.extend(row.names.iter().map(|name| ((*name).to_owned(), sleeps)));
            }
        }
        for line in TEXT.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            if let Err(what) = all.line(line) {
                panic!("knowledge/verify.txt: {what}: {line}");
            }
        }
        all
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let (names, words) = line.split_once(':').ok_or("expected 'NAME, …: WORDS'")?;
        let words: Vec<&str> = words.split_whitespace().collect();
        let index = |word: &str| word.parse::<usize>().map_err(|_| "expected the index of an argument");
        for name in names.split(',').map(|name| name.trim().to_owned()) {
            match words[..] {
                ["sleeps"] => {
                    self.sleeps.insert(name, Sleeps::Always);
                }
                ["sleeps", at] => {
                    self.sleeps.insert(name, Sleeps::Flags(index(at)?));
                }
                ["allocates", "zero"] => {
                    self.allocates.insert(name, Allocates::Zeroed(true));
                }
                ["allocates", "any"] => {
                    self.allocates.insert(name, Allocates::Zeroed(false));
                }
                ["allocates", "zero", "sleeps", at] => {
                    self.sleeps.insert(name.clone(), Sleeps::Flags(index(at)?));
                    self.allocates.insert(name, Allocates::Zeroed(true));
                }
                ["allocates", "flags", at] => {
                    self.sleeps.insert(name.clone(), Sleeps::Flags(index(at)?));
                    self.allocates.insert(name, Allocates::ByFlags(index(at)?));
                }
                ["clock"] => {
                    self.clocks.insert(name);
                }
                ["drains"] => {
                    self.drains.insert(name);
                }
                ["cookie"] => {
                    self.cookies.insert(name);
                }
                _ => return Err("expected 'sleeps', 'allocates', 'clock', 'drains' or 'cookie'"),
            }
        }
        Ok(())
    }

    /// Whether a call of this function is one step with known effects, so that its body is not looked at.
    pub fn is_known(&self, name: &str) -> bool {
        self.sleeps(name).is_some()
            || self.allocates(name).is_some()
            || self.is_clock(name)
            || self.drains(name)
    }

    /// When a function sleeps; `None` where nothing says that it does.
    pub fn sleeps(&self, name: &str) -> Option<Sleeps> {
        self.sleeps.get(plain(name)).copied()
    }

    /// What a function that allocates returns.
    pub fn allocates(&self, name: &str) -> Option<Allocates> {
        self.allocates.get(plain(name)).copied()
    }

    /// Whether this function or variable gives the time.
    pub fn is_clock(&self, name: &str) -> bool {
        self.clocks.contains(name)
    }

    /// Whether a function keeps or compares an address that it gets as `void *`, or frees it, and writes nothing there.
    pub fn is_cookie(&self, name: &str) -> bool {
        self.cookies.contains(plain(name))
    }

    /// Whether a function takes an element out of a queue, which is empty some time.
    pub fn drains(&self, name: &str) -> bool {
        self.drains.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read() {
        let all = Knowledge::stock();
        assert_eq!(all.sleeps("msleep"), Some(Sleeps::Always));
        assert_eq!(all.sleeps("__kmalloc_noprof"), Some(Sleeps::Flags(1)));
        assert_eq!(all.allocates("kzalloc"), Some(Allocates::Zeroed(true)));
        assert!(all.is_clock("ktime_get") && all.sleeps("readl").is_none());
        assert!(Knowledge::default().line("x: dances").is_err());
    }
}
