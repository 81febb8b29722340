//! The setups in which a guest is run.

/// The usual place where device accesses are held; "off" holds none.
pub const GATE: &str = "vmm";

/// The checkers of the thesis together.
const THREE: Option<&str> = Some("dmcheck,drcheck,dmacheck");

/// A setup of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The name for `--tools`.
    pub name: &'static str,
    /// The head of its column.
    pub title: &'static str,
    /// The checkers; `None` for a guest without them.
    pub tools: Option<&'static str>,
    /// More options of `guardrail check`.
    more: &'static [&'static str],
    /// Where accesses are held; `None` if where all setups hold them.
    gate: Option<&'static str>,
}

impl Setup {
    const fn checked(name: &'static str, title: &'static str, tools: Option<&'static str>) -> Setup {
        Setup { name, title, tools, more: &[], gate: None }
    }
}

const PLAIN: Setup = Setup { more: &["--observe", "none"], ..Setup::checked("none", "without", None) };

/// What is measured unless the user asks for something else.
const USUAL: [Setup; 5] = [
    Setup::checked("dmcheck", "DMCheck", Some("dmcheck")),
    Setup::checked("drcheck", "DRCheck", Some("drcheck")),
    Setup::checked("dmacheck", "DMACheck", Some("dmacheck")),
    Setup::checked("three", "all three", THREE),
    Setup { gate: Some("vfio-user"), ..Setup::checked("vfio-user", "three, vfio-user", THREE) },
];

/// What is measured only on request. These are the tracer, whose log nobody reads, and all three checkers
/// without a gate, with writes that wait, or with each way to wait for the log.
const OTHERS: [Setup; 7] = [
    Setup { more: &["--observe", "trace"], ..Setup::checked("tracer", "tracer alone", None) },
    Setup { gate: Some("off"), ..Setup::checked("ungated", "three, no gate", THREE) },
    Setup { more: &["--hold-writes"], ..Setup::checked("held", "three, held", THREE) },
    Setup {
        more: &["--hold-writes"],
        gate: Some("vfio-user"),
        ..Setup::checked("vfio-user-held", "vfio-user, held", THREE)
    },
    Setup { more: &["--schedule", "polling"], ..Setup::checked("polling", "three, polling", THREE) },
    Setup { more: &["--schedule", "yielding"], ..Setup::checked("yielding", "three, yielding", THREE) },
    Setup { more: &["--schedule", "interrupt"], ..Setup::checked("interrupt", "three, interrupt", THREE) },
];

/// The setups with these names; the first is always the guest without Guardrail.
pub fn chosen(names: &[String]) -> Result<Vec<Setup>, String> {
    let known = || USUAL.into_iter().chain(OTHERS);
    if let Some(name) = names.iter().find(|name| !known().any(|setup| setup.name == *name)) {
        let known: Vec<&str> = known().map(|setup| setup.name).collect();
        return Err(format!("--tools has no column '{name}'; there are {}", known.join(", ")));
    }
    let mut setups = vec![PLAIN];
    match names {
        [] => setups.extend(USUAL),
        _ => setups.extend(known().filter(|setup| names.iter().any(|name| name == setup.name))),
    }
    Ok(setups)
}

impl Setup {
    /// Where accesses are held; `None` if they are not.
    pub fn gate<'a>(&self, usual: &'a str) -> Option<&'a str>
    where
        'static: 'a,
    {
        let gate = self.gate.unwrap_or(usual);
        (self.tools.is_some() && gate != "off").then_some(gate)
    }

    /// The options of `guardrail check` for this setup.
    pub fn options(&self, usual: &str) -> Vec<String> {
        let mut words = self.more.to_vec();
        if let Some(tools) = self.tools {
            words.extend(["--tool", tools, "--gate", self.gate(usual).unwrap_or("off")]);
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: &str, gate: &str) -> String {
        chosen(&[name.to_owned()]).unwrap()[1].options(gate).join(" ")
    }

    #[test]
    fn the_guest_without_guardrail_is_always_there_and_has_no_gate() {
        let setups = chosen(&["three".to_owned()]).unwrap();
        assert_eq!(setups.iter().map(|setup| setup.name).collect::<Vec<_>>(), ["none", "three"]);
        assert_eq!(setups[0].options("vmm"), ["--observe", "none"]);
        assert_eq!(setups[0].gate("vmm"), None);
        assert_eq!(chosen(&[]).unwrap().len(), 6);
    }

    #[test]
    fn columns_have_the_gate_that_is_asked_for_or_their_own() {
        assert_eq!(options("dmcheck", "vmm"), "--tool dmcheck --gate vmm");
        assert_eq!(options("dmcheck", "off"), "--tool dmcheck --gate off");
        assert!(options("vfio-user", "vmm").ends_with("--gate vfio-user"));
        assert!(options("ungated", "vmm").ends_with("--gate off"));
        assert!(options("polling", "vmm").starts_with("--schedule polling --tool "));
        assert_eq!(options("tracer", "vmm"), "--observe trace");
    }

    #[test]
    fn unknown_columns_are_refused() {
        assert!(chosen(&["none".to_owned()]).unwrap_err().contains("there are dmcheck, drcheck"));
    }
}
