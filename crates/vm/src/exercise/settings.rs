//! What the user sets for a run: variables of the workload, and parameters of modules. A name that nothing
//! reads is refused before the guest boots.

use crate::error::{Error, Result, suggest};
use crate::exercise::catalog::Class;
use crate::exercise::workload::{NAMES, Workload, is_variable};
use crate::kernel::modules::{ModuleFile, normalized};
use std::collections::{BTreeMap, BTreeSet};

/// The most names that an error lists.
const MOST_LISTED: usize = 12;

/// Refuses the first variable that no script of the run reads.
pub(crate) fn refuse_unread<'a, 'b>(
    scripts: impl Iterator<Item = &'b Workload>,
    names: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let scripts: Vec<&Workload> = scripts.collect();
    let known: BTreeSet<&str> = scripts.iter().flat_map(|script| script.variables()).collect();
    for name in names {
        if !is_variable(name) {
            return Err(Error::BadValue(format!("'{name}' cannot be the name of a workload variable")));
        }
        if !known.contains(name) && !scripts.iter().any(|script| script.reads_any()) {
            let script = scripts.first().map_or("load", |script| script.name.as_str());
            let what = format!("the workload '{script}' reads no variable '{name}'");
            return Err(Error::BadValue(unknown(&what, name, "reads", known.iter().copied())));
        }
    }
    Ok(())
}

/// Refuses the first variable that nothing reads: neither a workload of ours, nor the script that `script`
/// names.
pub fn refuse_unknown<'a>(script: Option<&str>, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let classes = [Class::None, Class::Network, Class::Storage, Class::Usb];
    let of = |name: &str| classes.iter().find_map(|class| Workload::find(name, *class).ok());
    let all: Vec<Workload> = script.into_iter().chain(NAMES.map(|(name, _)| name)).filter_map(of).collect();
    refuse_unread(all.iter(), names)
}

/// A value for a parameter of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The module; `None` for the only driver of the run.
    pub module: Option<String>,
    /// The parameter's name.
    pub name: String,
    /// The value, as the kernel reads it.
    pub value: String,
}

impl std::str::FromStr for Parameter {
    type Err = Error;

    /// Reads `NAME=VALUE` or `MODULE.NAME=VALUE`.
    fn from_str(text: &str) -> Result<Parameter> {
        let bad = |why: &str| Error::BadValue(format!("--param {text}: {why}"));
        let (name, value) = text.split_once('=').ok_or_else(|| bad("it has to be NAME=VALUE"))?;
        let (module, name) = match name.split_once('.') {
            Some((module, name)) => (Some(normalized(module)), name),
            None => (None, name),
        };
        let plain = |name: &str| is_variable(&normalized(name));
        if !plain(name) || module.as_deref().is_some_and(|module| module.is_empty()) {
            return Err(bad("it has to be NAME=VALUE or MODULE.NAME=VALUE"));
        }
        if value.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(bad("a value cannot contain blanks"));
        }
        Ok(Parameter { module, name: name.to_owned(), value: value.to_owned() })
    }
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let module = self.module.as_ref().map_or(String::new(), |module| format!("{module}."));
        write!(f, "{module}{}={}", self.name, self.value)
    }
}

/// The parameters of each module of a run, by its name, as words `NAME=VALUE`.
pub type Parameters = BTreeMap<String, Vec<String>>;

/// Finds the module of each parameter. `drivers` are those under check, `others` the further modules that the
/// guest loads.
pub(crate) fn assign(
    given: &[Parameter],
    drivers: &[&ModuleFile],
    others: &[&ModuleFile],
) -> Result<Parameters> {
    let mut assigned = Parameters::new();
    for parameter in given {
        let module = match (&parameter.module, drivers) {
            (Some(name), _) => {
                let mut all = drivers.iter().chain(others);
                all.find(|module| module.name == *name).ok_or_else(|| Error::Unknown {
                    what: "module of the run",
                    name: name.clone(),
                    near: suggest(name, drivers.iter().chain(others).map(|module| module.name.as_str())),
                })?
            }
            (None, [only]) => only,
            (None, many) => {
                let names: Vec<&str> = many.iter().map(|module| module.name.as_str()).collect();
                return Err(Error::BadValue(format!(
                    "--param {parameter} does not say for which driver; write MODULE.NAME=VALUE with one of {}",
                    names.join(", ")
                )));
            }
        };
        let known = &module.facts.info.parameters;
        let name = normalized(&parameter.name);
        if !known.iter().any(|known| normalized(known) == name) {
            let what = format!("the module '{}' has no parameter '{}'", module.name, parameter.name);
            let known = known.iter().map(String::as_str);
            return Err(Error::BadValue(unknown(&what, &parameter.name, "has", known)));
        }
        let words = assigned.entry(module.name.clone()).or_default();
        words.push(format!("{}={}", parameter.name, parameter.value));
    }
    Ok(assigned)
}

/// A sentence about an unknown name, with the nearest known ones; where none is near, with all of them.
fn unknown<'a>(what: &str, name: &str, verb: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = suggest(name, known.clone());
    let all: Vec<String> = known.map(str::to_owned).collect();
    let quoted =
        |names: &[String]| names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    match (near.as_slice(), all.as_slice()) {
        (_, []) => format!("{what}; it {verb} none"),
        ([], all) if all.len() > MOST_LISTED => {
            format!("{what}; it {verb} {} and {} more", quoted(&all[..MOST_LISTED]), all.len() - MOST_LISTED)
        }
        ([], all) => format!("{what}; it {verb} {}", quoted(all)),
        ([one], _) => format!("{what}; the nearest is '{one}'"),
        (many, _) => format!("{what}; the nearest are {}", quoted(many)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exercise::catalog::Class;
    use std::fs;

    fn refused(workload: &Workload, name: &str) -> Option<String> {
        let scripts = std::iter::once(workload);
        refuse_unread(scripts, std::iter::once(name)).err().map(|error| error.to_string())
    }

    #[test]
    fn variables_that_no_script_reads_are_refused() {
        let network = Workload::find("network", Class::Network).unwrap();
        assert_eq!(refused(&network, "DOWNLOAD_MB"), None);
        assert_eq!(
            refused(&network, "DOWNLOAD_GB").unwrap(),
            "the workload 'network' reads no variable 'DOWNLOAD_GB'; the nearest is 'DOWNLOAD_MB'"
        );
        assert_eq!(
            refused(&network, "DISK_MB").unwrap(),
            "the workload 'network' reads no variable 'DISK_MB'; it reads 'DOWNLOAD_MB', 'PINGS', 'REQUESTS', \
             'UNCHECKED', 'UPLOADS'"
        );
        let load = Workload::find("load", Class::None).unwrap();
        assert_eq!(refused(&load, "A").unwrap(), "the workload 'load' reads no variable 'A'; it reads none");
        assert_eq!(refused(&load, "A B").unwrap(), "'A B' cannot be the name of a workload variable");
    }

    #[test]
    fn a_script_of_the_user_reads_what_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.sh");
        fs::write(&path, "step a test \"$rounds\" -gt ${least:-0} $1 $$; echo $((ROUNDS * 2))").unwrap();
        let script = Workload::find(&path.display().to_string(), Class::None).unwrap();
        assert_eq!(script.variables().into_iter().collect::<Vec<_>>(), ["ROUNDS", "least", "rounds"]);
        assert_eq!(refused(&script, "ROUNDS"), None);
        assert!(refused(&script, "LEST").unwrap().ends_with("the nearest is 'least'"));
    }

    #[test]
    fn a_script_that_makes_names_reads_any() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.sh");
        fs::write(&path, "eval \"ping -s \\$STREAM_$1_SIZE host\"").unwrap();
        let script = Workload::find(&path.display().to_string(), Class::None).unwrap();
        assert_eq!(refused(&script, "STREAM_0_SIZE"), None);
        assert!(refused(&script, "STREAM-0").is_some());
    }

    #[test]
    fn parameters_belong_to_a_module() {
        let parse = |text: &str| text.parse::<Parameter>().map_err(|error| error.to_string());
        assert_eq!(parse("e1000.debug=3").unwrap().module.as_deref(), Some("e1000"));
        assert_eq!(parse("a.b-c=1=2").unwrap().to_string(), "a.b-c=1=2");
        assert_eq!(parse("debug").unwrap_err(), "--param debug: it has to be NAME=VALUE");
        assert_eq!(parse("a=b c").unwrap_err(), "--param a=b c: a value cannot contain blanks");
        for odd in ["=1", ".a=1", "a.=1", "a b=1"] {
            assert!(parse(odd).unwrap_err().ends_with("MODULE.NAME=VALUE"), "{odd}");
        }
    }
}
