//! How much of a module is under a rule: what policies that end calls want to know before they trust a
//! report's absence.

use std::fmt::{self, Display, Formatter};

/// A part of a number of things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// How many are under a rule.
    pub part: u32,
    /// How many there are.
    pub of: u32,
}

impl Share {
    /// Counts things, and those of them that are under a rule.
    pub fn of(all: impl IntoIterator<Item = bool>) -> Share {
        let count = |share: Share, ruled| Share { part: share.part + u32::from(ruled), of: share.of + 1 };
        all.into_iter().fold(Share::default(), count)
    }

    /// Whether so many percent are under a rule.
    pub fn reaches(self, percent: u32) -> bool {
        u64::from(self.part) * 100 >= u64::from(self.of) * u64::from(percent)
    }

    /// Percent, rounded down; nothing is under a rule as a whole.
    pub fn percent(self) -> u32 {
        (100 * u64::from(self.part)).checked_div(self.of.into()).map_or(100, |percent| percent as u32)
    }
}

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

/// How much of a guarded module is under a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grade {
    /// Imported functions that a rule covers at each call, or that the user trusts.
    pub imports: Share,
    /// Functions that the kernel calls, all arguments of which a rule describes.
    pub entries: Share,
    /// Stores that are checked, or that need no check.
    pub stores: Share,
}

impl Display for Grade {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "imports={},entries={},stores={}", self.imports, self.entries, self.stores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_down() {
        assert_eq!(Share::of([true, true, false]).percent(), 66);
        assert_eq!(Share { part: 999, of: 1000 }.percent(), 99);
        assert_eq!((Share::default().percent(), Share { part: 0, of: 3 }.percent()), (100, 0));
        assert!(Share { part: 2, of: 3 }.reaches(66) && !Share { part: 2, of: 3 }.reaches(67));
        assert!(Share::default().reaches(100) && Share { part: 0, of: 3 }.reaches(0));
        assert_eq!(Share { part: u32::MAX, of: u32::MAX }.percent(), 100);
        let grade = Grade { imports: Share { part: 1, of: 2 }, ..Grade::default() };
        assert_eq!(grade.to_string(), "imports=1/2,entries=0/0,stores=0/0");
    }
}
