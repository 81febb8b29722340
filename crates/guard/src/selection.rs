//! Which entries of drivers are transactions from the start: those that fit patterns, and those that lead to what findings
//! name.

use crate::findings::Findings;
use guardrail_abi as abi;
use guardrail_binfmt::ModuleImage;
use guardrail_host::HostError;
use guardrail_learn::Graph;
use guardrail_rewrite::border::EntryPoints;
use guardrail_rewrite::border::annotations::Border;
use guardrail_rewrite::{Object, RewriteError};
use guardrail_trace::client::fits;
use guardrail_vm::error::suggest;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The most names in a sentence.
const NAMED: usize = 6;
const BINDS: &str = "it binds or unbinds a device";
const POWER: &str = "it saves or restores the device, which transactions rely on";
const INIT: &str = "it is the module's init function";
const EXIT: &str = "it is the module's exit function";

/// A part of what a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Entries whose names fit; `*` stands for any characters, and `?` for one.
    Pattern(String),
    /// Entries that lead to the functions that the findings in a file name.
    Findings(PathBuf),
}

impl Wanted {
    /// Parses a list of patterns and of files behind `@`, with commas between them. `all` is `*`.
    pub fn parse(text: &str) -> Result<Vec<Wanted>, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || "_.*?".contains(c);
        let one = |part: &str| match part.strip_prefix('@') {
            Some("") => Err("'@' has no file behind it".to_owned()),
            Some(file) => Ok(Wanted::Findings(file.into())),
            None if part == "all" => Ok(Wanted::Pattern("*".to_owned())),
            None if part.chars().all(good) => Ok(Wanted::Pattern(part.to_owned())),
            None => Err(format!(
                "'{part}' is no pattern of function names, in which * stands for any characters and ? for one"
            )),
        };
        text.split(',').filter(|part| !part.is_empty()).map(one).collect()
    }
}

/// What a user asks for, with the files read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    patterns: Vec<String>,
    findings: Vec<Findings>,
}

impl Selection {
    /// Reads the files.
    pub fn read(wanted: &[Wanted]) -> Result<Selection, HostError> {
        let mut selection = Selection::default();
        for one in wanted {
            match one {
                Wanted::Pattern(pattern) => selection.patterns.push(pattern.clone()),
                Wanted::Findings(file) => selection.findings.push(Findings::read(file)?),
            }
        }
        Ok(selection)
    }

    /// Refuses a pattern, or a file, that selects nothing in any of the drivers.
    pub fn check(&self, offers: &[&Offer]) -> Result<(), HostError> {
        let drivers: Vec<&str> = offers.iter().map(|offer| offer.driver.as_str()).collect();
        let drivers = drivers.join(", ");
        let patterns = self.patterns.iter().filter(|pattern| pattern.chars().any(|c| c != '*'));
        let missed = patterns
            .filter_map(|pattern| Some((pattern.clone(), no_entry(pattern, offers, &drivers)?)))
            .chain(self.findings.iter().filter_map(|findings| {
                Some((format!("@{}", findings.file), no_use(findings, offers, &drivers)?))
            }))
            .next();
        missed.map_or(Ok(()), |(what, why)| Err(HostError::Usage(format!("--transact {what}: {why}"))))
    }
}

/// An entry of a driver.
#[derive(Debug)]
pub struct Entry {
    /// Its names; at least one.
    names: Vec<String>,
    /// Why it is never a transaction.
    why: Option<&'static str>,
}

impl Entry {
    /// The name that the runtime knows.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Why it cannot be a transaction; `None` where it can.
    pub fn obstacle(&self) -> Option<&'static str> {
        self.why
    }
}

/// What can be selected in a driver.
#[derive(Debug)]
pub struct Offer {
    driver: String,
    entries: Vec<Entry>,
    graph: Graph,
}

impl Offer {
    /// Finds the entries of a stock module.
    pub fn of(driver: &str, image: &ModuleImage, object: &Object) -> Result<Offer, RewriteError> {
        let EntryPoints { entries, init, exit } = EntryPoints::of(object)?;
        let hooks = [(init, INIT), (exit, EXIT)].map(|(names, why)| Entry { names, why: Some(why) });
        let entries = entries.into_iter().map(|names| Entry { names, why: None }).chain(hooks);
        let entries = entries.filter(|entry| !entry.names.is_empty()).collect();
        Ok(Offer { driver: driver.to_owned(), entries, graph: Graph::new(image) })
    }

    /// All names of entries that are selected, be it that they can be transactions or not.
    pub fn selected(&self, selection: &Selection) -> BTreeSet<String> {
        let mut leading = BTreeSet::new();
        for findings in &selection.findings {
            leading.extend(self.leading_to_any(findings));
        }
        let by_pattern = |name: &String| selection.patterns.iter().any(|pattern| fits(pattern, name));
        let wanted = |name: &String| by_pattern(name) || leading.contains(name.as_str());
        let entries = self.entries.iter().filter(|entry| entry.names.iter().any(wanted));
        entries.flat_map(|entry| entry.names.iter().cloned()).collect()
    }

    /// Notes which entries cannot be transactions, as a border that was prepared for transactions says.
    pub fn note_obstacles(&mut self, border: &Border) {
        for entry in &mut self.entries {
            let known = entry.names.iter().filter_map(|name| border.interposition.entries.get(name));
            let flags = known.fold(0, |flags, known| flags | known.flags);
            let has = |flag: u8| flags & u32::from(flag) != 0;
            entry.why = entry
                .why
                .or(has(abi::ENTRY_BINDS).then_some(BINDS))
                .or(has(abi::ENTRY_POWER).then_some(POWER));
        }
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn leading_to_any<'a>(&'a self, findings: &'a Findings) -> BTreeSet<&'a str> {
        self.graph.leading_to(findings.of_driver(&self.driver)).unwrap_or_default()
    }

    /// Entries with one of these names.
    fn among<'a>(&'a self, names: &'a BTreeSet<&str>) -> impl Iterator<Item = &'a Entry> {
        let has = |entry: &&Entry| entry.names.iter().any(|name| names.contains(name.as_str()));
        self.entries.iter().filter(has)
    }
}

/// Why no entry fits a pattern that can be a transaction; `None` where one does.
fn no_entry(pattern: &str, offers: &[&Offer], drivers: &str) -> Option<String> {
    let all = || offers.iter().flat_map(|offer| offer.entries.iter().map(|entry| (*offer, entry)));
    let fit: Vec<_> = all().filter(|(_, entry)| entry.names.iter().any(|name| fits(pattern, name))).collect();
    if fit.iter().any(|(_, entry)| entry.why.is_none()) {
        return None;
    }
    if let Some((why, name)) = fit.iter().find_map(|(_, entry)| Some((entry.why?, entry.name()))) {
        let other = "; choose other entries";
        return Some(format!("{name} cannot be a transaction, since {why}{other}"));
    }
    for offer in offers {
        // Only a name without * and ? can be that of a function.
        let Some(names) = offer.graph.leading_to([pattern]) else { continue };
        let able = offer.among(&names).filter(|entry| entry.why.is_none());
        let able: Vec<&str> = able.map(Entry::name).collect();
        return Some(match able.is_empty() {
            true => format!(
                "it is a function of {}, but no entry leads to it by direct calls; choose entries",
                offer.driver
            ),
            false => format!(
                "it is a function of {}, but no entry; those that lead to it are {}",
                offer.driver,
                listed(&able)
            ),
        });
    }
    let bare: String = pattern.chars().filter(|c| !"*?".contains(*c)).collect();
    let able = all().filter(|(_, entry)| entry.why.is_none()).map(|(_, entry)| entry.name());
    let near = suggest(&bare, able);
    let near = match near.as_slice() {
        [] => "DIR/guard.json has all after 'guardrail guard DRIVER --transact \"\" -o DIR'".to_owned(),
        near => format!("the nearest are {}", listed(&near.iter().map(String::as_str).collect::<Vec<_>>())),
    };
    Some(format!("there is no such entry of {drivers}; {near}"))
}

/// Why findings select no entry; `None` where they select one.
fn no_use(findings: &Findings, offers: &[&Offer], drivers: &str) -> Option<String> {
    if findings.count == 0 {
        return Some("it has no finding, so it selects nothing; leave it out".to_owned());
    }
    let leading: Vec<_> = offers.iter().map(|offer| (offer, offer.leading_to_any(findings))).collect();
    let led = || leading.iter().flat_map(|(offer, names)| offer.among(names));
    if led().any(|entry| entry.why.is_none()) {
        return None;
    }
    if let Some((why, name)) = led().find_map(|entry| Some((entry.why?, entry.name()))) {
        return Some(format!(
            "its findings name only what {name} leads to, and that cannot be a transaction, since {why}; choose entries by name"
        ));
    }
    if leading.iter().any(|(_, names)| !names.is_empty()) {
        return Some(format!(
            "no entry of {drivers} leads by direct calls to what its findings name; choose entries by name"
        ));
    }
    let of_others = offers.iter().all(|offer| findings.is_of_other_than(&offer.driver));
    Some(match of_others {
        true => format!(
            "it is a report of {}, and {drivers} is to be guarded; name a report of that",
            findings.drivers.join(", ")
        ),
        false => format!(
            "its findings name no function of {drivers}; name a report whose findings have call stacks in it"
        ),
    })
}

/// The first names of a list.
fn listed(names: &[&str]) -> String {
    match names.len().checked_sub(NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed() {
        let pattern = |text: &str| Wanted::Pattern(text.into());
        assert_eq!(Wanted::parse("").unwrap(), []);
        assert_eq!(Wanted::parse("all").unwrap(), [pattern("*")]);
        assert_eq!(
            Wanted::parse("@a b/findings.json,e1000_set_*").unwrap(),
            [Wanted::Findings("a b/findings.json".into()), pattern("e1000_set_*")]
        );
        assert_eq!(Wanted::parse("x,@").unwrap_err(), "'@' has no file behind it");
        assert!(Wanted::parse("a-b").unwrap_err().starts_with("'a-b' is no pattern"));
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f", "g", "h"]), "a, b, c, d, e, f and 2 more");
    }
}
