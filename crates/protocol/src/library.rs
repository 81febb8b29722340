//! The stock protocols together with those of a user's files.

use crate::{Machine, ProtocolError, parse, stock};
use guardrail_knowledge::chart::parse::{self as charts, Draft};

/// Protocols, and the object charts of the same files.
#[derive(Debug)]
pub struct Library {
    /// The stock protocols, then those of the files.
    pub machines: Vec<Machine>,
    /// The object charts of the files.
    pub drafts: Vec<Draft>,
}

impl Library {
    /// Reads files, each a name for messages and a text.
    pub fn new(files: &[(String, String)]) -> Result<Library, ProtocolError> {
        let mut machines = stock::machines()?;
        let mut drafts = Vec::new();
        for (name, text) in files {
            let more = parse::machines(name, text)?;
            if more.is_empty() {
                return Err(ProtocolError::Input(format!(
                    "{name} has no protocol; expected 'protocol NAME'"
                )));
            }
            machines.extend(more);
            drafts.extend(charts::file(name, text)?);
        }
        parse::distinct(&machines)?;
        Ok(Library { machines, drafts })
    }
}

/// The protocol of this name.
pub fn one<'a>(machines: &'a [Machine], name: &str) -> Result<&'a Machine, ProtocolError> {
    machines.iter().find(|machine| machine.name() == name).ok_or_else(|| {
        let names: Vec<&str> = machines.iter().map(Machine::name).collect();
        ProtocolError::Input(format!("there is no protocol '{name}'; there are {}", names.join(", ")))
    })
}

/// The protocols of these names, or all where there is no name.
pub fn some<'a>(machines: &'a [Machine], names: &[String]) -> Result<Vec<&'a Machine>, ProtocolError> {
    match names {
        [] => Ok(machines.iter().collect()),
        names => names.iter().map(|name| one(machines, name)).collect(),
    }
}
