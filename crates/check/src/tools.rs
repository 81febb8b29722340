//! The names of checkers, as a user lists them.

use guardrail_analysis::checkers;
use guardrail_host::HostError;

/// Splits a list of tools, and refuses unknown ones.
pub fn tools(list: &str) -> Result<Vec<String>, HostError> {
    let mut tools = Vec::new();
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    for name in names.flat_map(checkers::members) {
        let known = checkers::names_of_tools();
        if !known.clone().any(|other| other == name) && checkers::by_name(name).is_none() {
            let near = guardrail_vm::error::suggest(name, known.clone());
            let near = if near.is_empty() { known.map(str::to_owned).collect() } else { near };
            let error = guardrail_vm::Error::Unknown { what: "tool", name: name.to_owned(), near };
            return Err(error.into());
        }
        if !tools.iter().any(|other| other == name) {
            tools.push(name.to_owned());
        }
    }
    if tools.is_empty() {
        return Err(HostError::Usage("--tool names no tool; see 'guardrail list tools'".into()));
    }
    Ok(tools)
}
