//! The summary of what was done to drivers, as text and as `guard.json`.

use crate::selection::Offer;
use crate::workshop::{Hardened, Workshop};
use guardrail_host::drivers::digest;
use guardrail_host::{HostError, files};
use guardrail_rewrite::border::annotations::Border;
use guardrail_rewrite::border::grade;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The name and version of the description.
const SCHEMA: &str = "guardrail-guard/1";
/// The most names that the text lists; the others are only counted.
const NAMED: usize = 12;

/// The summary of a folder of guarded drivers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    schema: &'static str,
    /// The kernel's release, as `uname -r` prints it.
    kernel: String,
    /// The protection domain of all the drivers.
    domain: u8,
    runtime: Runtime,
    /// The drivers, in the order in which they were given.
    pub drivers: Vec<Driver>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Runtime {
    file: &'static str,
    interface: Option<u32>,
    digest: String,
}

/// A guarded driver.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Driver {
    name: String,
    file: String,
    /// The digests of the stock module and of the guarded one.
    stock: String,
    digest: String,
    code: Code,
    stores: StoreCounts,
    imports: Imports,
    entries: Entries,
    /// Which entries are transactions; absent where none can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    transactions: Option<Transactions>,
    grade: Grade,
    trusted: Vec<String>,
    own_convention: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Code {
    before: u64,
    after: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct StoreCounts {
    checked: usize,
    /// Stores among them that share the check of another, and stores that ask the runtime each time.
    merged: usize,
    asked: usize,
    /// The number of indirect calls that are checked.
    calls: usize,
    register_saved: usize,
    flags_kept: usize,
    /// Stores to the function's own stack frame, which need no check.
    own_frame: usize,
    own_per_cpu: usize,
    kernel_per_cpu: usize,
    same: usize,
    /// Stores in code that the kernel replaces, which are not checked.
    replaced: usize,
}

/// How much of a driver is under a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Grade {
    imports: Share,
    entries: Share,
    stores: Share,
    /// Percent of the imports that policies other than "log" want.
    threshold: u32,
    /// Whether these policies take the driver.
    enough: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Share {
    under_rule: u32,
    of: u32,
    percent: u32,
}

impl From<grade::Share> for Share {
    fn from(share: grade::Share) -> Share {
        Share { under_rule: share.part, of: share.of, percent: share.percent() }
    }
}

impl From<&Hardened> for Grade {
    fn from(hardened: &Hardened) -> Grade {
        let grade::Grade { imports, entries, stores } = hardened.grade;
        let enough = imports.reaches(hardened.threshold);
        let threshold = hardened.threshold;
        Grade { imports: imports.into(), entries: entries.into(), stores: stores.into(), threshold, enough }
    }
}

/// Functions of the kernel that the driver calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Imports {
    /// Functions that are called through a wrapper.
    wrapped: Vec<String>,
    /// Functions that are known to need no wrapper.
    plain: Vec<String>,
    /// Functions among both whose annotation was derived from the kernel's code.
    derived: Vec<String>,
    /// Functions without an annotation: a call neither grants the driver a right nor checks one.
    unannotated: Vec<String>,
    /// Functions with a wrapper that are called without it, from code that the kernel replaces.
    missed: Vec<String>,
    /// The number of sites that call through a wrapper.
    calls: usize,
}

/// Functions of the driver that the kernel calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Entries {
    /// Functions that are called through a wrapper.
    wrapped: Vec<String>,
    /// Functions among them with arguments that no annotation covers.
    unknown: Vec<String>,
}

/// Which entries of a driver are transactions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Transactions {
    /// Entries that are so from the start.
    selected: Vec<String>,
    /// Entries that can be chosen later.
    others: Vec<String>,
    /// Entries that never are, and init and exit functions, each with the reason.
    never: BTreeMap<String, &'static str>,
}

impl Transactions {
    fn of(border: &Border, offer: &Offer) -> Transactions {
        let mut all = Transactions::default();
        for entry in offer.entries() {
            let name = entry.name().to_owned();
            let known = border.interposition.entries.get(&name);
            let selected =
                known.is_some_and(|known| known.flags & u32::from(guardrail_abi::ENTRY_SELECTED) != 0);
            match entry.obstacle() {
                Some(why) => drop(all.never.insert(name, why)),
                None if selected => all.selected.push(name),
                None => all.others.push(name),
            }
        }
        all
    }
}

impl Summary {
    /// The summary of drivers that were guarded together.
    pub fn new(workshop: &Workshop<'_>, hardened: &[Hardened]) -> Summary {
        Summary {
            schema: SCHEMA,
            kernel: workshop.release.clone(),
            domain: workshop.domain,
            runtime: Runtime {
                file: crate::RUNTIME,
                interface: workshop.exports.abi,
                digest: digest(&workshop.runtime),
            },
            drivers: hardened.iter().map(Driver::new).collect(),
        }
    }

    /// The contents of `guard.json`.
    pub fn json(&self) -> Result<String, HostError> {
        files::json(self)
    }

    /// The summary as text; `out` is the folder of the files.
    pub fn text(&self, out: &Path) -> String {
        let mut text = String::new();
        for driver in &self.drivers {
            text += &driver.text(&self.kernel, self.domain, out);
        }
        let interface = self.runtime.interface.map_or("?".to_owned(), |interface| interface.to_string());
        text += &format!("runtime: {}, interface {interface}\n", out.join(self.runtime.file).display());
        text
    }
}

impl Driver {
    fn new(hardened: &Hardened) -> Driver {
        let stores = &hardened.stores;
        let (border, done) = (&hardened.border, &hardened.done);
        let wrapped = |name: &&String| done.imports.contains(name);
        let (wrapped, plain): (Vec<&String>, Vec<&String>) = border.annotated.iter().partition(wrapped);
        let unknown = border.unknown.iter().filter(|name| done.entries.contains(name));
        Driver {
            name: hardened.name.clone(),
            file: format!("{}.ko", hardened.name),
            stock: digest(&hardened.stock),
            digest: digest(&hardened.file),
            code: Code { before: hardened.counts.old_bytes, after: hardened.counts.new_bytes },
            stores: StoreCounts {
                checked: stores.checked,
                merged: stores.merged,
                asked: stores.strings + stores.per_cpu + stores.odd,
                calls: stores.calls,
                register_saved: stores.saved,
                flags_kept: stores.flags,
                own_frame: stores.frame,
                own_per_cpu: stores.own,
                kernel_per_cpu: stores.kernel_per_cpu,
                same: stores.same,
                replaced: stores.replaced,
            },
            imports: Imports {
                wrapped: wrapped.into_iter().cloned().collect(),
                plain: plain.into_iter().cloned().collect(),
                derived: border.derived.clone(),
                unannotated: border.unannotated.clone(),
                missed: done.missed.iter().cloned().collect(),
                calls: done.calls,
            },
            entries: Entries { wrapped: done.entries.clone(), unknown: unknown.cloned().collect() },
            transactions: hardened.offer.as_ref().map(|offer| Transactions::of(border, offer)),
            grade: hardened.into(),
            trusted: hardened.trusted.clone(),
            own_convention: hardened.own.clone(),
        }
    }

    fn text(&self, kernel: &str, domain: u8, out: &Path) -> String {
        let StoreCounts { checked, merged, calls, own_frame, own_per_cpu, replaced, .. } = self.stores;
        let mut text =
            format!("{} for {kernel}, domain {domain}: {}\n", self.name, out.join(&self.file).display());
        let mut line = |head: &str, rest: String| text += &format!("  {head:<12}{rest}\n");
        let growth = self.code.after as f64 / self.code.before.max(1) as f64;
        line("code", format!("{} bytes, {growth:.2} times as many as before", self.code.after));
        line(
            "stores",
            format!(
                "{checked} checked, {merged} of them with another; {own_frame} to its own frames and {own_per_cpu} to its per-CPU variables need no check"
            ),
        );
        line("calls", format!("{calls} by pointer, checked"));
        if replaced > 0 {
            line("unchecked", format!("{replaced} stores in code that the kernel replaces"));
        }
        let Imports { wrapped, plain, derived, unannotated, missed, .. } = &self.imports;
        line(
            "imports",
            format!(
                "{} functions: {} wrapped, {} known to need no wrapper, {} without an annotation{}",
                wrapped.len() + plain.len() + unannotated.len(),
                wrapped.len(),
                plain.len(),
                unannotated.len(),
                named(unannotated)
            ),
        );
        let rows = wrapped.len() + plain.len();
        line(
            "rows",
            format!(
                "{} written, {} derived, {} without a row",
                rows - derived.len(),
                derived.len(),
                unannotated.len()
            ),
        );
        if !missed.is_empty() {
            line("", format!("called past their wrapper, in code that the kernel replaces{}", named(missed)));
        }
        let Entries { wrapped, unknown } = &self.entries;
        line(
            "entries",
            format!(
                "{} functions that the kernel calls by pointer; {} have arguments that no annotation describes{}",
                wrapped.len(),
                unknown.len(),
                named(unknown)
            ),
        );
        if let Some(Transactions { selected, others, .. }) = &self.transactions {
            let able = selected.len() + others.len();
            line(
                "transact",
                format!(
                    "{} of {able} entries that can be, from the start{}",
                    selected.len(),
                    named(selected)
                ),
            );
        }
        let Grade { imports, entries, stores, threshold, enough } = &self.grade;
        line(
            "grade",
            format!(
                "{}% of the imports, {}% of the entries and {}% of the stores are under a rule",
                imports.percent, entries.percent, stores.percent
            ),
        );
        if !enough {
            line(
                "",
                format!(
                    "only policy \"log\" takes it: the others want {threshold}% of the imports; see --trust and --threshold"
                ),
            );
        }
        if !self.trusted.is_empty() {
            line("trusted", self.trusted.join(", "));
        }
        text
    }
}

/// The first names of a list, after a colon.
fn named(names: &[String]) -> String {
    match names.len() {
        0 => String::new(),
        n if n <= NAMED => format!(": {}", names.join(", ")),
        n => format!(": {} and {} more (guard.json has all)", names[..NAMED].join(", "), n - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let names = |count: usize| (0..count).map(|i| format!("f{i}")).collect::<Vec<_>>();
        assert_eq!(named(&names(0)), "");
        assert_eq!(named(&names(2)), ": f0, f1");
        assert!(named(&names(20)).ends_with("f11 and 8 more (guard.json has all)"));
    }
}
