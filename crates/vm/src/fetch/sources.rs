//! The machine's apt sources: which Debian mirror does it use?
//!
//! This program contains no host name. The mirror is the first one in the machine's own sources that serves a
//! Debian suite. Its security mirror is found, or derived, likewise.

use crate::error::{Context, Error, Result};
use std::fs;
use std::path::Path;

/// The mirror that provides Debian packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The URI of the archive.
    pub main: String,
    /// The URI of the security archive, if known.
    pub security: Option<String>,
}

/// One line or stanza of the sources: a URI and its suites.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
}

const RELEASES: [&str; 8] =
    ["bookworm", "trixie", "forky", "sid", "stable", "testing", "unstable", "oldstable"];

impl Mirror {
    /// The mirror that this machine's apt uses.
    pub fn of_this_machine() -> Result<Mirror> {
        Mirror::of_folder(Path::new("/etc/apt"))
    }

    /// The mirror that a user names by one address, or by a second one of its security archive. `setting` is what names
    /// it, for the error.
    pub fn named(named: &str, setting: &str) -> Result<Mirror> {
        let mut words = named.split_whitespace().map(|word| word.trim_end_matches('/').to_owned());
        let (main, security, more) = (words.next().unwrap_or_default(), words.next(), words.next());
        let plain = |uri: &String| is_uri(uri) && !uri.contains(['[', ']', '"', '#']);
        if more.is_some() || ![Some(&main), security.as_ref()].into_iter().flatten().all(plain) {
            return Err(Error::BadValue(format!(
                "{setting} is '{named}', which is no address of a Debian archive; set it to one, such as http://HOST/debian, and behind a blank to that of the security archive"
            )));
        }
        Ok(Mirror { main, security })
    }

    /// The mirror that the sources in `folder` (laid out like `/etc/apt`) name.
    pub fn of_folder(folder: &Path) -> Result<Mirror> {
        let mut sources = Vec::new();
        if let Ok(text) = fs::read_to_string(folder.join("sources.list")) {
            sources.extend(one_line_style(&text));
        }
        let parts = folder.join("sources.list.d");
        let mut files = Vec::new();
        if parts.is_dir() {
            for entry in fs::read_dir(&parts).context("list", &parts)? {
                files.push(entry.context("list", &parts)?.path());
            }
        }
        files.sort();
        for file in files {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            match file.extension().and_then(|e| e.to_str()) {
                Some("list") => sources.extend(one_line_style(&text)),
                Some("sources") => sources.extend(deb822_style(&text)),
                _ => {}
            }
        }
        Mirror::among(&sources).ok_or(Error::NoMirror)
    }

    fn among(sources: &[Source]) -> Option<Mirror> {
        let serves = |source: &Source, suffix: &str| {
            source.suites.iter().any(|suite| {
                let suite = suite.trim_end_matches('/');
                let base = suite.strip_suffix(suffix).unwrap_or("");
                !suffix.is_empty() && RELEASES.contains(&base)
                    || suffix.is_empty() && RELEASES.contains(&suite)
            })
        };
        // Archives of others use Debian's suite names, too; Debian's own end in "/debian", except for
        // snapshots.
        let fits = |source: &&Source| {
            serves(source, "")
                && !source.uri.contains("security")
                && source.components.iter().any(|component| component == "main")
        };
        let main = sources
            .iter()
            .filter(fits)
            .find(|source| source.uri.trim_end_matches('/').ends_with("/debian"))
            .or_else(|| sources.iter().find(fits))?;
        let main = main.uri.trim_end_matches('/').to_owned();
        let security = sources
            .iter()
            .find(|source| serves(source, "-security"))
            .map(|source| source.uri.trim_end_matches('/').to_owned())
            .or_else(|| main.strip_suffix("/debian").map(|base| format!("{base}/debian-security")));
        Some(Mirror { main, security })
    }

    /// The lines of a `sources.list` with every suite that Guardrail fetches from.
    pub fn sources_list(&self, keyring: &str) -> String {
        let mut text = String::new();
        // Of files that are there already, apt makes no copies, but the packages are to be in folders of the cache.
        let copied =
            |uri: &str| uri.strip_prefix("file:").map_or(uri.to_owned(), |path| format!("copy:{path}"));
        let main = copied(&self.main);
        let suites = ["bookworm", "bookworm-updates", "bookworm-backports", "trixie", "trixie-backports"];
        for suite in suites {
            text += &format!("deb [arch=amd64 signed-by={keyring}] {main} {suite} main\n");
        }
        if let Some(security) = &self.security {
            let security = copied(security);
            text += &format!("deb [arch=amd64 signed-by={keyring}] {security} bookworm-security main\n");
        }
        text
    }
}

fn is_uri(word: &str) -> bool {
    ["http://", "https://", "file:/", "mirror+", "ftp://"].iter().any(|scheme| word.starts_with(scheme))
}

fn one_line_style(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        let Some(rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t'])) else {
            continue;
        };
        // Options in brackets may hold spaces.
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']').map_or("", |(_, rest)| rest),
            None => rest,
        };
        let mut words = rest.split_whitespace();
        if let (Some(uri), Some(suite)) = (words.next(), words.next())
            && is_uri(uri)
        {
            let components = words.map(str::to_owned).collect();
            sources.push(Source { uri: uri.to_owned(), suites: vec![suite.to_owned()], components });
        }
    }
    sources
}

fn deb822_style(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    // Comment lines do not end a stanza; empty lines do.
    let clean: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in clean.split(|line| line.trim().is_empty()) {
        let (mut types, mut uris, mut suites, mut components) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut enabled = true;
        let mut field = String::new();
        for line in stanza {
            let value = if line.starts_with([' ', '\t']) {
                line
            } else if let Some((name, value)) = line.split_once(':') {
                field = name.trim().to_ascii_lowercase();
                value
            } else {
                continue;
            };
            let words = value.split_whitespace().map(str::to_owned);
            match field.as_str() {
                "types" => types.extend(words),
                "uris" => uris.extend(words),
                "suites" => suites.extend(words),
                "components" => components.extend(words),
                "enabled" => enabled = !value.trim().eq_ignore_ascii_case("no"),
                _ => {}
            }
        }
        if enabled && types.iter().any(|kind| kind == "deb") {
            let uris = uris.into_iter().filter(|uri| is_uri(uri));
            sources.extend(uris.map(|uri| Source {
                uri,
                suites: suites.clone(),
                components: components.clone(),
            }));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(files: &[(&str, &str)]) -> Option<Mirror> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sources.list.d")).unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Mirror::of_folder(folder.path()).ok()
    }

    #[test]
    fn one_line_sources_with_options_and_comments() {
        let text = "# deb http://old.example/debian bookworm main\n\
                    deb-src http://src.example/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/k] http://m.example/debian/ bookworm main # here\n\
                    deb http://m.example/debian-security bookworm-security main\n";
        let found = mirror(&[("sources.list", text)]).unwrap();
        assert_eq!(found.main, "http://m.example/debian");
        assert_eq!(found.security.as_deref(), Some("http://m.example/debian-security"));
    }

    #[test]
    fn deb822_sources_and_a_derived_security_mirror() {
        let text = "Types: deb\n# a comment\nURIs: http://m.example/debian\nSuites: bookworm\n bookworm-updates\n\
                    Components: main\n\nTypes: deb\nEnabled: no\nURIs: http://n.example/debian-security\n\
                    Suites: bookworm-security\n";
        let other =
            "deb https://tools.example/apt stable main\ndeb https://t.example/linux/debian bookworm stable\n";
        let found =
            mirror(&[("sources.list.d/debian.sources", text), ("sources.list.d/a.list", other)]).unwrap();
        assert_eq!(found.main, "http://m.example/debian");
        assert_eq!(found.security.as_deref(), Some("http://m.example/debian-security"));
        assert!(
            found.sources_list("/k").contains("signed-by=/k] http://m.example/debian trixie-backports main")
        );
    }

    #[test]
    fn a_mirror_is_named_by_its_addresses() {
        let named = |text: &str| Mirror::named(text, "M");
        let found = named(" http://m.example/debian/  file:///srv/security ").unwrap();
        assert_eq!(
            (&*found.main, found.security.as_deref()),
            ("http://m.example/debian", Some("file:///srv/security"))
        );
        let list = found.sources_list("/k");
        assert!(list.ends_with("] copy:///srv/security bookworm-security main\n"), "{list}");
        assert!(!named("file:/srv/debian").unwrap().sources_list("/k").contains("security"));
        for bad in [
            "",
            "m.example/debian",
            "/srv",
            "http://a http://b http://c",
            "http://a] x",
            "http://a b",
            "http://a#",
        ] {
            let said = named(bad).unwrap_err().to_string();
            assert!(said.starts_with(&format!("M is '{bad}', which is no address")), "{said}");
        }
    }

    #[test]
    fn no_debian_mirror_is_an_error() {
        assert_eq!(mirror(&[("sources.list", "deb http://u.example/ubuntu noble main\n")]), None);
    }
}
