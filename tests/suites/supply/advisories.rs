//! Known vulnerabilities: the lock files against the database of the RustSec project.
//!
//! The database is the folder that `GUARDRAIL_ADVISORIES` names, or a copy in the cache that is made or renewed once a
//! day. Where there is neither, a line says so; `docs/design/dependencies.md` has the last result.

use crate::policy::{LOCKS, packages, policy};
use guardrail_vm::cache::Cache;
use semver::{Version, VersionReq};
use serde::Deserialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Where a copy is named that somebody has made.
const COPY: &str = "GUARDRAIL_ADVISORIES";
/// A copy that is younger is not renewed.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);
/// Advisories that the database has at least; with fewer it is not whole.
const LEAST: usize = 1000;

/// The head of an advisory.
#[derive(Deserialize)]
struct Advisory {
    advisory: About,
    versions: Option<Versions>,
}

#[derive(Deserialize)]
struct About {
    id: String,
    package: String,
    withdrawn: Option<toml::Value>,
}

/// Versions that the defect does not reach.
#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

impl Advisory {
    /// The advisory in a file of the database, whose head is TOML in a block of Markdown.
    fn parse(text: &str) -> Option<Advisory> {
        let head = text.strip_prefix("```toml\n")?.split("\n```").next()?;
        toml::from_str(head).ok()
    }

    fn reaches(&self, name: &str, version: &Version) -> bool {
        let default = Versions::default();
        let versions = self.versions.as_ref().unwrap_or(&default);
        let mut safe = versions.patched.iter().chain(&versions.unaffected);
        self.advisory.package == name
            && self.advisory.withdrawn.is_none()
            && !safe.any(|range| range.matches(version))
    }
}

/// Advisories about crates of ours that the policy does not ignore. Where there is no database, it prints so.
pub fn open() -> Vec<String> {
    let Some(database) = database() else {
        // The test's own output is not shown where it passes.
        let line = format!(
            "not checked: advisories about crates; their database cannot be fetched ({COPY} names a copy)"
        );
        writeln!(std::io::stderr(), "{line}").expect("standard error is open");
        return Vec::new();
    };
    against(&database)
}

fn against(database: &Path) -> Vec<String> {
    let policy = policy();
    let mut advisories = Vec::new();
    let mut found = Vec::new();
    for folder in fs::read_dir(database.join("crates")).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            match Advisory::parse(&text) {
                Some(advisory) => advisories.push(advisory),
                None => found.push(format!("{} cannot be read", file.path().display())),
            }
        }
    }
    if advisories.len() < LEAST {
        found.push(format!("{} has only {} advisories", database.display(), advisories.len()));
    }
    for lock in LOCKS {
        for package in packages(lock) {
            let version = Version::parse(&package.version).expect("cargo writes versions");
            let reaching = advisories.iter().filter(|one| one.reaches(&package.name, &version));
            let counted = reaching
                .filter(|one| !policy.advisories.ignore.iter().any(|known| known.id == one.advisory.id));
            found.extend(
                counted.map(|one| format!("{lock}: {} {version} has {}", package.name, one.advisory.id)),
            );
        }
    }
    found
}

/// The folder with the database; `None` where it cannot be had.
fn database() -> Option<PathBuf> {
    if let Some(copy) = std::env::var_os(COPY).filter(|copy| !copy.is_empty()) {
        return Some(PathBuf::from(copy));
    }
    let cache = Cache::open().ok()?;
    let _lock = cache.lock("advisories").ok()?;
    let folder = cache.path("advisories");
    let made = fs::metadata(folder.join(".git/FETCH_HEAD")).and_then(|data| data.modified());
    let age = made.ok().and_then(|made| SystemTime::now().duration_since(made).ok());
    if age.is_some_and(|age| age < FRESH) {
        return Some(folder);
    }
    let url = policy().advisories.db_urls.pop()?;
    let git = |words: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", "git", "-C"]).arg(&folder).args(words).env("GIT_TERMINAL_PROMPT", "0");
        command.output().is_ok_and(|output| output.status.success())
    };
    fs::create_dir_all(&folder).ok()?;
    let renewed = git(&["init", "--quiet"])
        && git(&["fetch", "--quiet", "--depth=1", &url, "HEAD"])
        && git(&["reset", "--quiet", "--hard", "FETCH_HEAD"]);
    if !renewed {
        // An old copy would hide that new advisories are missing.
        let _ = fs::remove_dir_all(&folder);
    }
    renewed.then_some(folder)
}

#[test]
fn an_advisory_reaches_versions_that_are_neither_patched_nor_unaffected() {
    let text = "```toml\n[advisory]\nid = \"RUSTSEC-2026-0001\"\npackage = \"thing\"\n[versions]\n\
                patched = [\">= 1.4.2\", \"^1.3.9\"]\nunaffected = [\"< 1.1\"]\n```\n\n# A title\n";
    let advisory = Advisory::parse(text).unwrap();
    let reached = |version: &str| advisory.reaches("thing", &Version::parse(version).unwrap());
    assert!(reached("1.1.0") && reached("1.3.8+more"));
    assert!(!reached("1.0.9") && !reached("1.3.9") && !reached("1.4.2") && !reached("2.0.0"));
    assert!(!advisory.reaches("other", &Version::new(1, 1, 0)));
    let withdrawn = text.replace("[versions]", "withdrawn = \"2026-02-01\"\n[versions]");
    assert!(!Advisory::parse(&withdrawn).unwrap().reaches("thing", &Version::new(1, 1, 0)));
    assert!(Advisory::parse("# no head").is_none());
    let unpatched = text.split("[versions]").next().unwrap().to_owned() + "\n```\n";
    assert!(Advisory::parse(&unpatched).unwrap().reaches("thing", &Version::new(9, 0, 0)));
}
