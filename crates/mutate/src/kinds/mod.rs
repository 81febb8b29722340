//! Kinds of bugs, and where in a driver each can be planted.

mod branch;
mod check;
mod copy;
mod free;
mod grow;
mod lock;
mod loops;
mod store;
#[cfg(test)]
mod tests;

use crate::code::Function;
use crate::edit::Edit;
use crate::elf::Elf;
use crate::error::Error;
use crate::random::Random;
use grow::Grow;

/// A kind of bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A condition is inverted.
    FlipBranch,
    /// A loop runs more often.
    LengthenLoop,
    /// A call or instruction copies or fills more bytes.
    LargerCopy,
    /// A comparison is strict instead of not, or the other way around.
    OffByOne,
    /// A store is left out.
    DeleteAssignment,
    /// A store writes to another address.
    WrongPointer,
    /// A lock is not taken.
    MissingLock,
    /// The result of a call is not checked.
    MissingCheck,
    /// Memory is freed while it is still in use.
    EarlyFree,
}

impl Kind {
    /// All kinds: first those of the paper's table, then what it leaves out.
    pub const ALL: [Kind; 9] = [
        Kind::FlipBranch,
        Kind::LengthenLoop,
        Kind::LargerCopy,
        Kind::OffByOne,
        Kind::DeleteAssignment,
        Kind::WrongPointer,
        Kind::MissingLock,
        Kind::MissingCheck,
        Kind::EarlyFree,
    ];

    /// The name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::FlipBranch => "flip-branch",
            Kind::LengthenLoop => "lengthen-loop",
            Kind::LargerCopy => "larger-copy",
            Kind::OffByOne => "off-by-one",
            Kind::DeleteAssignment => "delete-assignment",
            Kind::WrongPointer => "wrong-pointer",
            Kind::MissingLock => "missing-lock",
            Kind::MissingCheck => "missing-check",
            Kind::EarlyFree => "early-free",
        }
    }

    /// The kinds that a list names; `all` stands for all of them.
    pub fn list(names: &[String]) -> Result<Vec<Kind>, Error> {
        let mut kinds = Vec::new();
        for name in names {
            if name == "all" {
                kinds.extend(Kind::ALL);
                continue;
            }
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
            kinds.push(kind.ok_or_else(|| Error::UnknownKind {
                name: name.clone(),
                known: Kind::ALL.map(Kind::name).join(", ") + " and all",
            })?);
        }
        kinds.sort_unstable();
        kinds.dedup();
        Ok(kinds)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A place for a bug.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The function, by index in the module's list.
    pub function: usize,
    /// The instruction that stands for the place.
    pub insn: usize,
    /// What is changed there.
    pub plan: Plan,
}

/// What is changed at a place.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// These instructions change, always in the same way.
    Fixed { edits: Vec<Edit>, what: String },
    /// A number grows.
    Grow(Grow),
    /// A store gets another address.
    Pointer,
}

/// The changes that make a bug.
#[derive(Clone, Debug)]
pub(crate) struct Planted {
    pub edits: Vec<Edit>,
    /// What the bug is, in words.
    pub what: String,
}

impl Site {
    fn fixed(function: usize, insn: usize, edits: Vec<Edit>, what: impl Into<String>) -> Site {
        Site { function, insn, plan: Plan::Fixed { edits, what: what.into() } }
    }

    /// The changes for an increment; `None` where it does not fit here.
    pub(crate) fn plant(
        &self,
        elf: &Elf,
        functions: &[Function],
        increment: u64,
        random: &mut Random,
    ) -> Option<Planted> {
        let function = &functions[self.function];
        match &self.plan {
            Plan::Fixed { edits, what } => Some(Planted { edits: edits.clone(), what: what.clone() }),
            Plan::Grow(grow) => grow.plant(elf, function, increment),
            Plan::Pointer => store::redirect(elf, function, self.insn, random),
        }
    }
}

/// All places for a kind of bug, in the order of the file.
pub(crate) fn sites(elf: &Elf, functions: &[Function], kind: Kind) -> Vec<Site> {
    let mut sites = Vec::new();
    for (index, function) in functions.iter().enumerate() {
        match kind {
            Kind::FlipBranch => branch::flips(elf, function, index, &mut sites),
            Kind::OffByOne => branch::off_by_one(elf, function, index, &mut sites),
            Kind::LengthenLoop => loops::bounds(elf, function, index, &mut sites),
            Kind::LargerCopy => copy::sizes(elf, function, index, &mut sites),
            Kind::DeleteAssignment => store::deletions(elf, function, index, &mut sites),
            Kind::WrongPointer => store::pointers(elf, function, index, &mut sites),
            Kind::MissingLock => lock::pairs(elf, function, index, &mut sites),
            Kind::MissingCheck => check::checks(elf, function, index, &mut sites),
            Kind::EarlyFree => free::early(elf, function, index, &mut sites),
        }
    }
    let locked = |site: &Site| match &site.plan {
        Plan::Fixed { edits, .. } => {
            edits.iter().any(|edit| functions[site.function].insns[edit.insn].locked)
        }
        Plan::Grow(grow) => functions[site.function].insns[grow.insn].locked,
        Plan::Pointer => functions[site.function].insns[site.insn].locked,
    };
    sites.retain(|site| !locked(site));
    sites
}
