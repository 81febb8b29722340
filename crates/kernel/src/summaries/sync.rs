//! Effects on locks and on the order of events: the words of `sync.txt`.

use super::Resolver;
use guardrail_binfmt::btf::Type;
use guardrail_knowledge::effect::{Key, LockKind, LockMode, SyncOp, When};

/// Locks and objects of which a kernel has one.
pub(crate) const GLOBALS: [&str; 8] =
    ["rtnl", "rcu", "grace", "current", "cpus", "pci", "device", "handlers"];

impl Resolver<'_, '_> {
    /// The effect that the words say, if they are of this sort.
    pub(super) fn sync(&self, words: &[&str]) -> Option<SyncOp> {
        let options = words.get(3..).unwrap_or_default();
        let kind = |i: usize| kind(words.get(i)?);
        let key = |i: usize| self.key(words.get(i)?);
        let mode = if options.contains(&"shared") { LockMode::Shared } else { LockMode::Exclusive };
        Some(match *words.first()? {
            "lock" => SyncOp::Lock {
                kind: kind(1)?,
                key: key(2)?,
                mode,
                when: self.when(options)?,
                tries: options.contains(&"try"),
            },
            "unlock" => SyncOp::Unlock { kind: kind(1)?, key: key(2)?, mode },
            "hold" => SyncOp::Hold { kind: kind(1)?, key: key(2)? },
            "release" => SyncOp::Release { key: key(1)?, word: words.get(1)?.contains('.') },
            "acquire" => SyncOp::Acquire { key: key(1)?, when: self.when(words)? },
            "sleeps" => SyncOp::Sleeps {
                gfp: match words.get(1) {
                    Some(name) => Some(self.arg(name)?),
                    None => None,
                },
            },
            _ => return None,
        })
    }

    /// `ARG`, `ARG.struct.member` or `global(NAME)`; nothing where the kernel lacks the member.
    fn key(&self, text: &str) -> Option<Key> {
        key(self.image.btf(), &|name| self.arg(name), text)
    }

    /// `if=zero` or `if=nonzero`, of the width that the function's result has.
    fn when(&self, words: &[&str]) -> Option<When> {
        let Some(condition) = words.iter().find_map(|word| word.strip_prefix("if=")) else {
            return Some(When::Always);
        };
        when(condition, self.narrow)
    }
}

/// A key as the tables write it.
pub(crate) fn key(btf: &guardrail_binfmt::Btf, arg: &dyn Fn(&str) -> Option<u8>, text: &str) -> Option<Key> {
    if let Some(name) = text.strip_prefix("global(").and_then(|rest| rest.strip_suffix(')')) {
        return GLOBALS.iter().find(|known| **known == name).map(|known| Key::Global(known));
    }
    let Some((name, place)) = text.split_once('.') else {
        return Some(Key::Arg { arg: arg(text)?, offset: 0 });
    };
    let (structure, member) = place.split_once('.')?;
    Some(Key::Arg { arg: arg(name)?, offset: btf.member_offset(structure, member)? })
}

/// A condition on a result; `narrow` where only its lowest byte counts.
pub(crate) fn when(text: &str, narrow: bool) -> Option<When> {
    Some(match (text, narrow) {
        ("zero", false) => When::Zero,
        ("zero", true) => When::False,
        ("nonzero", false) => When::NonZero,
        ("nonzero", true) => When::True,
        _ => return None,
    })
}

/// Whether a function of this result type leaves all but the lowest byte of the register undefined.
pub(crate) fn is_narrow(result: &Type) -> bool {
    matches!(result, Type::Int { bits: 8, .. })
}

fn kind(word: &str) -> Option<LockKind> {
    Some(match word {
        "spin" => LockKind::Spin,
        "rw" => LockKind::Rw,
        "mutex" => LockKind::Mutex,
        "semaphore" => LockKind::Semaphore,
        "rwsem" => LockKind::RwSem,
        "rcu" => LockKind::Rcu,
        "socket" => LockKind::Socket,
        "bit" => LockKind::Bit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summaries::Entry;

    const TEXT: &str = include_str!("../../sync.txt");

    #[test]
    fn every_line_of_the_table_is_understood() {
        for line in TEXT.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let entry = Entry::parse(line).unwrap_or_else(|| panic!("not understood: {line}"));
            assert!(!entry.names.is_empty() && entry.params.len() <= 6, "{line}");
            for effect in &entry.effects {
                let words: Vec<&str> = effect.split_whitespace().collect();
                check(&words, &entry.params).unwrap_or_else(|what| panic!("{what} in '{effect}' of: {line}"));
            }
        }
    }

    /// Judges the words of an effect without a kernel.
    fn check(words: &[&str], params: &[&str]) -> Result<(), &'static str> {
        let key_at = match *words.first().ok_or("nothing")? {
            "lock" | "unlock" | "hold" => {
                kind(words.get(1).ok_or("no kind")?).ok_or("unknown kind")?;
                2
            }
            "release" | "acquire" => 1,
            "sleeps" => {
                let known = words.get(1).is_none_or(|name| params.contains(name));
                return if known && words.len() <= 2 { Ok(()) } else { Err("unknown argument") };
            }
            "everywhere" if words.len() == 1 => return Ok(()),
            _ => return Err("unknown effect"),
        };
        let key = words.get(key_at).ok_or("no key")?;
        match key.strip_prefix("global(") {
            Some(name) => {
                let name = name.strip_suffix(')').ok_or("open parenthesis")?;
                GLOBALS.contains(&name).then_some(()).ok_or("unknown global")?;
            }
            None => {
                let parts: Vec<&str> = key.splitn(3, '.').collect();
                (parts.len() != 2 && params.contains(&parts[0])).then_some(()).ok_or("unknown argument")?;
            }
        }
        let allowed = |word: &&str| matches!(*word, "shared" | "try" | "if=zero" | "if=nonzero");
        words[key_at + 1..].iter().all(allowed).then_some(()).ok_or("unknown option")
    }

    #[test]
    fn names_are_unique_in_the_table() {
        let mut seen = std::collections::BTreeSet::new();
        for name in TEXT.lines().filter_map(Entry::parse).flat_map(|entry| entry.names) {
            assert!(seen.insert(name.clone()), "{name} has two lines");
        }
    }

    #[test]
    fn every_lock_that_is_taken_can_be_given_back() {
        let of = |verb: &str| -> std::collections::BTreeSet<String> {
            let effects = TEXT
                .lines()
                .filter_map(Entry::parse)
                .flat_map(|entry| entry.effects.iter().map(|effect| effect.to_string()).collect::<Vec<_>>());
            effects
                .filter_map(|effect| Some(effect.strip_prefix(verb)?.split(' ').next()?.to_owned()))
                .collect()
        };
        assert_eq!(of("lock "), of("unlock "));
    }

    #[test]
    fn a_results_lowest_byte_decides_for_a_boolean() {
        assert!(when("nonzero", false).unwrap().holds(0x100));
        assert!(!when("nonzero", true).unwrap().holds(0x100));
        assert!(when("zero", true).unwrap().holds(0xff00));
        assert_eq!(when("negative", false), None);
    }
}
