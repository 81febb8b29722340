//! Effects on locks and on the order of events: the verbs of `locks.txt`.

use super::Resolver;
use guardrail_binfmt::btf::Type;
use guardrail_knowledge::effect::{GLOBALS, Key, LockKind, LockMode, SyncOp, When};

impl Resolver<'_, '_> {
    /// The effect that the words state; `None` if their verb is not of this sort.
    pub(super) fn locks(&self, words: &[&str]) -> Option<SyncOp> {
        let options = words.get(3..).unwrap_or_default();
        let kind = |i: usize| LockKind::named(words.get(i)?);
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

    /// `ARG`, `ARG.struct.member` or `global(NAME)`; `None` where the kernel lacks the member.
    fn key(&self, text: &str) -> Option<Key> {
        key(self.image.btf(), &|name| self.arg(name), text)
    }

    /// `if=zero` or `if=nonzero`, of the width that the function's result has.
    fn when(&self, words: &[&str]) -> Option<When> {
        let Some(condition) = words.iter().find_map(|word| word.strip_prefix("if=")) else {
            return Some(When::Always);
        };
        When::named(condition, self.narrow)
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

/// Whether a function of this result type leaves all but the lowest byte of the register undefined.
pub(crate) fn is_narrow(result: &Type) -> bool {
    matches!(result, Type::Int { bits: 8, .. })
}
