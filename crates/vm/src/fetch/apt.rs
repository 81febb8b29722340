//! How apt is run: which settings of the machine it gets, and which checks it always makes.
//!
//! Only the way to the mirror is the machine's. A signature that Debian's keyring does not verify, an index whose
//! date is past, and a package whose hash differs from the index are refused, whatever `/etc/apt` says.

use crate::error::{Error, Result};
use crate::fetch::sources::Mirror;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The keyring that signs Debian's archives.
pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The environment variable that accepts an index of any date, for mirrors that keep an old state.
pub(crate) const OLD_MIRROR: &str = "GUARDRAIL_OLD_MIRROR";

/// The environment variable that names the mirror in place of the machine's: the address of an archive, and behind a blank
/// that of its security archive.
pub const OWN_MIRROR: &str = "GUARDRAIL_MIRROR";

/// The environment variable that names the file with the keys of that mirror.
pub const OWN_KEYRING: &str = "GUARDRAIL_KEYRING";

/// The machine's settings of these groups say how the mirror is reached.
const GROUPS: [&str; 2] = ["acquire::http", "acquire::https"];

/// What is inherited of a group, for all hosts or for one. Neither these nor any other setting of `/etc/apt` can turn
/// a check off.
const INHERITED: [&str; 12] = [
    "proxy",
    "proxy-auto-detect",
    "proxyautodetect",
    "timeout",
    "connectionattemptdelaymsec",
    "pipeline-depth",
    "no-cache",
    "max-age",
    "user-agent",
    "cainfo",
    "sslcert",
    "sslkey",
];

/// Settings that make apt check what it fetches. They follow those that are inherited, and the last one holds.
const CHECKS: &str = "Acquire::AllowInsecureRepositories \"false\";\n\
     Acquire::AllowWeakRepositories \"false\";\n\
     Acquire::AllowDowngradeToInsecureRepositories \"false\";\n\
     Acquire::https::Verify-Peer \"true\";\n\
     Acquire::https::Verify-Host \"true\";\n\
     APT::Get::AllowUnauthenticated \"false\";\n";

/// The archive that packages are fetched from, and what the machine says about it.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    /// The keys that may sign it.
    pub keyring: PathBuf,
    /// The lines of its `sources.list`; the machine's mirror where absent.
    pub sources: Option<String>,
    /// What `apt-config dump` prints; asked where absent.
    pub settings: Option<String>,
    /// What the user names as mirror, in place of the machine's.
    pub named: Option<String>,
    /// True where an index of any date is accepted.
    pub any_date: bool,
}

impl Archive {
    /// Debian's, at the mirror of this machine, or what the environment names in its place.
    pub fn of_this_machine() -> Archive {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let keyring = PathBuf::from(set(OWN_KEYRING).unwrap_or_else(|| KEYRING.into()));
        let named = set(OWN_MIRROR).map(|named| named.to_string_lossy().into_owned());
        Archive { keyring, sources: None, settings: None, named, any_date: set(OLD_MIRROR).is_some() }
    }

    /// The mirror that packages come from.
    pub fn mirror(&self) -> Result<Mirror> {
        self.named.as_deref().map_or_else(Mirror::of_this_machine, |named| Mirror::named(named, OWN_MIRROR))
    }

    /// The whole path of the keyring, which has to exist.
    pub fn keyring(&self) -> Result<PathBuf> {
        let own = self.keyring != Path::new(KEYRING);
        let found = self.keyring.canonicalize().ok().filter(|path| path.is_file());
        // apt takes a blank for the end of the name, and a bracket for that of all options.
        let plain = |path: &PathBuf| !path.to_string_lossy().contains([' ', '\t', '\n', ']', ',', '"']);
        found.filter(plain).ok_or_else(|| match own {
            true => Error::BadValue(format!(
                "{} ({OWN_KEYRING}) is no keyring; name a file with the keys of the mirror, whose path has no blanks, commas and brackets",
                self.keyring.display()
            )),
            false => Error::MissingProgram {
                program: "debian-archive-keyring",
                package: "debian-archive-keyring",
            },
        })
    }

    /// The `sources.list` for apt.
    pub fn sources_list(&self) -> Result<String> {
        let keyring = self.keyring()?;
        match &self.sources {
            Some(sources) => Ok(sources.clone()),
            None => Ok(self.mirror()?.sources_list(&keyring.display().to_string())),
        }
    }

    /// Words for the checks that an index has passed, and for where it is from; an index with others is fetched anew.
    pub fn checked(&self) -> String {
        let checks = if self.any_date { "signatures\n" } else { "signatures and dates\n" };
        // The keys count, not where they are.
        let digest = || format!("{:x}\n", Sha256::digest(fs::read(&self.keyring).unwrap_or_default()));
        let keyring = (self.keyring != Path::new(KEYRING)).then(digest);
        let mirror = self.named.as_ref().map(|named| format!("{named}\n"));
        [Some(checks.to_owned()), mirror, keyring].into_iter().flatten().collect()
    }

    /// The settings that follow those of apt's folders.
    pub fn settings(&self) -> String {
        let inherited = match &self.settings {
            Some(dump) => inherited(dump),
            None => inherited(&machine_settings()),
        };
        let dates = !self.any_date;
        format!(
            "{inherited}{CHECKS}Acquire::Check-Valid-Until \"{dates}\";\nAcquire::Check-Date \"{dates}\";\n"
        )
    }
}

/// A path as apt's configuration language writes strings.
pub(crate) fn quote(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('"', ""))
}

/// All settings of the machine's apt, a line each.
fn machine_settings() -> String {
    let output = Command::new("apt-config").args(["dump", "--format", "%F \"%v\";%n"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Proxies and similar settings of a dump: without them the mirror may be out of reach.
fn inherited(dump: &str) -> String {
    let keeps = |line: &&str| {
        let Some((name, value)) = line.split_once(" \"") else { return false };
        let Some(value) = value.strip_suffix("\";").filter(|value| !value.is_empty()) else { return false };
        // apt's names have no case.
        let name = name.to_ascii_lowercase();
        let of_group = |group: &str| name.strip_prefix(group)?.strip_prefix("::");
        let forced = ["acquire::forceipv4", "acquire::forceipv6"].contains(&name.as_str());
        let known = GROUPS.into_iter().find_map(of_group).is_some_and(|rest| {
            rest.split("::").take(2).any(|part| INHERITED.contains(&part)) && !rest.contains("verify")
        });
        (forced || known) && !value.contains(['"', '\\'])
    };
    dump.lines().filter(keeps).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_mirror_is_inherited_and_nothing_else() {
        let kept = "Acquire::http::Proxy \"http://p.example:3128\";\n\
                    Acquire::HTTP::Proxy::m.example \"DIRECT\";\n\
                    Acquire::https::m.example::CaInfo \"/ca.pem\";\n\
                    acquire::forceipv4 \"true\";\n";
        let left = "Acquire::Check-Valid-Until \"false\";\n\
                    Acquire::Check-Date \"false\";\n\
                    acquire::check-date \"false\";\n\
                    Acquire::AllowInsecureRepositories \"1\";\n\
                    Acquire::https::Verify-Peer \"false\";\n\
                    Acquire::https::m.example::Verify-Peer \"false\";\n\
                    Acquire::https::Verify-Host::proxy \"false\";\n\
                    Acquire::https \"\";\n\
                    Acquire::https::Proxy \"\";\n\
                    Acquire::httpsx::Proxy \"p\";\n\
                    Acquire::http::User-Agent \"a\"; Acquire::Check-Date \"false\";\n\
                    APT::Get::AllowUnauthenticated \"true\";\n\
                    Dir::Bin::gpgv \"/bin/true\";\n";
        assert_eq!(inherited(&format!("{left}{kept}{left}")), kept);
    }
}
