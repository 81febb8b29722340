//! The list of attempts that are not stopped yet.

use libtest_mimic::Failed;

const LIST: &str = include_str!("../../fixtures/hostile/open.txt");

/// An attempt that is known to succeed.
pub struct Known {
    name: String,
    /// It ends the guest's kernel, or may do so.
    pub oopses: bool,
    /// The kernels where it succeeds; empty for all.
    kernels: Vec<String>,
    /// Why it is not stopped.
    pub reason: String,
}

/// Attempts that are known to succeed, as the file lists them.
pub struct Open(Vec<Known>);

impl Open {
    /// Reads `NAME escapes|oopses [KERNEL…]: REASON` from each line.
    pub fn read() -> Result<Open, Failed> {
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let known = lines.map(|line| {
            let (head, reason) = line.split_once(": ").ok_or_else(|| format!("'{line}' has no reason"))?;
            let mut words = head.split(' ').map(str::to_owned);
            let name = words.next().unwrap_or_default();
            let oopses = match words.next().as_deref() {
                Some("escapes") => false,
                Some("oopses") => true,
                _ => return Err(format!("'{line}' does not say whether it escapes or oopses")),
            };
            Ok(Known { name, oopses, kernels: words.collect(), reason: reason.to_owned() })
        });
        Ok(Open(known.collect::<Result<_, String>>()?))
    }

    /// The names of all that are listed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|known| known.name.as_str())
    }

    /// What is known of an attempt on a kernel, if it is not stopped there.
    pub fn of(&self, kernel: &str, name: &str) -> Option<&Known> {
        let here = |known: &&Known| {
            known.name == name && (known.kernels.is_empty() || known.kernels.iter().any(|one| one == kernel))
        };
        self.0.iter().find(here)
    }
}
