//! What apt refuses, with an archive of the test's own: unsigned indexes, old ones, and packages that were replaced.

use crate::error::{Error, Result};
use crate::fetch::apt::{Archive, OLD_MIRROR};
use crate::fetch::cache::Cache;
use crate::fetch::packages::{Fetch, Packages};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The settings of a machine whose apt checks nothing.
const CARELESS: &str = "Acquire::Check-Valid-Until \"false\";\nAcquire::Check-Date \"false\";\n\
    Acquire::AllowInsecureRepositories \"1\";\nAcquire::AllowWeakRepositories \"1\";\n\
    Acquire::AllowDowngradeToInsecureRepositories \"1\";\nAPT::Get::AllowUnauthenticated \"1\";\n\
    Acquire::https::Verify-Peer \"false\";\n";
/// Dates of indexes.
const PAST: &str = "Mon, 01 Jan 2024 00:00:00 UTC";
const LATER: &str = "Tue, 02 Jan 2024 00:00:00 UTC";
const TO_COME: &str = "Fri, 01 Jan 2100 00:00:00 UTC";

/// An archive in a folder with two keys, and a cache that fetches from it.
struct Own {
    folder: TempDir,
}

/// What an index says, and who signs it.
struct Index<'a> {
    date: &'a str,
    valid_until: Option<&'a str>,
    signer: Option<&'a str>,
}

/// An index that is accepted.
const GOOD: Index<'static> = Index { date: PAST, valid_until: None, signer: Some("good") };

impl Own {
    fn new() -> Own {
        let own = Own { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(own.path("archive")).unwrap();
        for name in ["good", "other"] {
            fs::create_dir(own.path(name)).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            fs::set_permissions(own.path(name), mode).unwrap();
            own.gpg(name, &["--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never"]);
            fs::write(own.path(&format!("{name}.gpg")), own.gpg(name, &["--export"])).unwrap();
        }
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn gpg(&self, name: &str, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new("gpg");
        command.arg("--homedir").arg(self.path(name)).args(["--batch", "--yes", "--quiet"]).args(arguments);
        let output = command.output().expect("gpg is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Publishes a package with this text, and an index of it.
    fn publish(&self, version: &str, text: &str, index: &Index<'_>) {
        let tree = self.path("tree");
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        let control = format!(
            "Package: thing\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\nDescription: x\n"
        );
        fs::write(tree.join("DEBIAN/control"), &control).unwrap();
        fs::write(tree.join("text"), text).unwrap();
        let deb = self.path("archive/thing.deb");
        let built = Command::new("dpkg-deb").args(["--root-owner-group", "-b"]).arg(&tree).arg(&deb).output();
        assert!(built.unwrap().status.success());
        let bytes = fs::read(&deb).unwrap();
        let (size, digest) = (bytes.len(), hex(&bytes));
        let packages = format!("{control}Filename: ./thing.deb\nSize: {size}\nSHA256: {digest}\n\n");
        fs::write(self.path("archive/Packages"), &packages).unwrap();
        let (size, digest) = (packages.len(), hex(packages.as_bytes()));
        let until = index.valid_until.map_or(String::new(), |date| format!("Valid-Until: {date}\n"));
        let date = index.date;
        let release =
            format!("Suite: test\nCodename: test\nDate: {date}\n{until}SHA256:\n {digest} {size} Packages\n");
        fs::write(self.path("archive/Release"), release).unwrap();
        let signed = self.path("archive/InRelease");
        let _ = fs::remove_file(&signed);
        if let Some(signer) = index.signer {
            let words = ["--clearsign", "--output"].map(str::to_owned);
            let files = [&signed, &self.path("archive/Release")].map(|path| path.display().to_string());
            let words: Vec<&str> = words.iter().chain(&files).map(String::as_str).collect();
            self.gpg(signer, &words);
        }
    }

    /// Publishes what stands in the archive under a suite that Guardrail fetches from, as a mirror has it.
    fn mirror(&self, suite: &str, signer: &str) {
        let (pool, dist) = (self.path("mirror/pool"), self.path(&format!("mirror/dists/{suite}")));
        let folder = dist.join("main/binary-amd64");
        for new in [&pool, &folder] {
            fs::create_dir_all(new).unwrap();
        }
        fs::copy(self.path("archive/thing.deb"), pool.join("thing.deb")).unwrap();
        let packages = fs::read_to_string(self.path("archive/Packages")).unwrap();
        let packages = packages.replace("./thing.deb", "pool/thing.deb");
        fs::write(folder.join("Packages"), &packages).unwrap();
        let (size, digest) = (packages.len(), hex(packages.as_bytes()));
        let release = format!(
            "Suite: {suite}\nCodename: {suite}\nDate: {PAST}\nArchitectures: amd64\nComponents: main\nSHA256:\n {digest} {size} main/binary-amd64/Packages\n"
        );
        fs::write(dist.join("Release"), release).unwrap();
        let files = [dist.join("InRelease"), dist.join("Release")].map(|path| path.display().to_string());
        self.gpg(signer, &["--clearsign", "--output", &files[0], &files[1]]);
    }

    /// What fetching the package from that mirror gives, with a keyring.
    fn fetch_named(&self, tree: &str, keyring: &str) -> Result<String> {
        let named = Some(format!("file://{}", self.path("mirror").display()));
        let (keyring, settings) = (self.path(keyring), Some(CARELESS.into()));
        let archive = Archive { keyring, sources: None, settings, named, any_date: false };
        self.unpacked(tree, archive)
    }

    /// What fetching the package into a new tree gives; the machine's own apt checks nothing.
    fn fetch(&self, tree: &str, any_date: bool) -> Result<String> {
        let keyring = self.path("good.gpg");
        let sources = format!(
            "deb [arch=amd64 signed-by={}] copy:{} ./\n",
            keyring.display(),
            self.path("archive").display()
        );
        let archive = Archive {
            keyring,
            sources: Some(sources),
            settings: Some(CARELESS.into()),
            named: None,
            any_date,
        };
        self.unpacked(tree, archive)
    }

    fn unpacked(&self, tree: &str, archive: Archive) -> Result<String> {
        let packages = Packages::of(&Cache::at(&self.path("cache")).unwrap(), archive);
        let folder = packages.ensure_tree(tree, "a thing", Fetch::Exactly(&["thing"]))?;
        Ok(fs::read_to_string(folder.join("text")).unwrap())
    }

    fn refusal(&self, tree: &str) -> String {
        self.fetch(tree, false).unwrap_err().to_string()
    }

    /// Forgets the index, as a user does who removes apt's folder.
    fn forget(&self) {
        fs::remove_dir_all(self.path("cache/apt")).unwrap();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        for name in ["good", "other"] {
            let _ = Command::new("gpgconf")
                .arg("--homedir")
                .arg(self.path(name))
                .args(["--kill", "all"])
                .status();
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn only_an_index_that_the_keyring_signs_is_accepted() {
    let own = Own::new();
    own.publish("1", "unsigned", &Index { signer: None, ..GOOD });
    let error = own.refusal("a");
    assert!(error.contains("is not signed"), "{error}");
    own.publish("1", "by another", &Index { signer: Some("other"), ..GOOD });
    let error = own.refusal("a");
    assert!(error.contains("is not signed") || error.contains("GPG error"), "{error}");
    own.publish("1", "good", &GOOD);
    assert_eq!(own.fetch("a", false).unwrap(), "good");
    // What was signed before does not become unsigned.
    own.publish("2", "unsigned", &Index { signer: None, date: LATER, ..GOOD });
    assert!(own.fetch("b", false).is_err());
}

#[test]
fn a_mirror_of_ones_own_is_trusted_by_its_own_keyring_alone() {
    let own = Own::new();
    own.publish("1", "mine", &GOOD);
    for suite in ["bookworm", "bookworm-updates", "bookworm-backports", "trixie", "trixie-backports"] {
        own.mirror(suite, "good");
    }
    let error = own.fetch_named("a", "other.gpg").unwrap_err();
    let said = error.to_string();
    let wanted = format!("no key of {} vouches for the mirror", own.path("other.gpg").display());
    assert!(matches!(error, Error::Untrusted { .. }) && said.contains(&wanted), "{said}");
    assert!(
        said.contains("NO_PUBKEY")
            && said.ends_with("set GUARDRAIL_KEYRING to the mirror's keyring, or name another mirror"),
        "{said}"
    );
    assert_eq!(own.fetch_named("a", "good.gpg").unwrap(), "mine");
    // The keyring counts with each index: another one does not take over what this one vouched for.
    assert!(matches!(own.fetch_named("b", "other.gpg"), Err(Error::Untrusted { .. })));
    let error = own.fetch_named("b", "absent.gpg").unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("(GUARDRAIL_KEYRING) is no keyring"), "{error}");
    own.mirror("trixie", "other");
    let error = own.fetch_named("c", "good.gpg");
    assert_eq!(error.unwrap(), "mine", "what is indexed is still fetched");
    own.forget();
    assert!(matches!(own.fetch_named("d", "good.gpg"), Err(Error::Untrusted { .. })));
}

#[test]
fn an_index_of_the_past_or_of_the_future_is_refused() {
    let own = Own::new();
    let expired = Index { valid_until: Some(LATER), ..GOOD };
    for (version, index) in [("1", expired), ("2", Index { date: TO_COME, ..GOOD })] {
        own.publish(version, "x", &index);
        let error = own.fetch(version, false).unwrap_err();
        assert!(matches!(error, Error::IndexDate { variable: OLD_MIRROR, .. }), "{error}");
        assert_eq!(own.fetch(version, true).unwrap(), "x", "the user accepts any date");
        own.refusal("without the variable, such an index is fetched anew");
        own.forget();
    }
}

#[test]
fn a_replaced_package_is_refused() {
    let own = Own::new();
    own.publish("1", "first", &GOOD);
    assert_eq!(own.fetch("a", false).unwrap(), "first");
    let index = read(&own.path("archive/InRelease"));
    own.publish("1", "other bytes, the old index", &GOOD);
    let packages = read(&own.path("archive/Packages"));
    fs::write(own.path("archive/InRelease"), &index).unwrap();
    let error = own.refusal("b");
    assert!(!error.contains("cannot be reached"), "{error}");
    fs::write(own.path("archive/Packages"), &packages).unwrap();
    own.publish("1", "other bytes, a new index", &Index { date: LATER, ..GOOD });
    let error = own.fetch("c", false).unwrap_err();
    assert!(matches!(&error, Error::Replaced { package, .. } if package == "thing_1_amd64.deb"), "{error}");
    own.forget();
    assert!(matches!(own.fetch("d", false), Err(Error::Replaced { .. })), "pins outlive the index");
    own.publish("2", "a new version", &Index { date: LATER, ..GOOD });
    assert_eq!(own.fetch("e", false).unwrap(), "a new version");
}

#[test]
fn an_older_index_does_not_replace_a_newer_one() {
    let own = Own::new();
    own.publish("2", "new", &Index { date: LATER, ..GOOD });
    assert_eq!(own.fetch("a", false).unwrap(), "new");
    own.publish("1", "old", &GOOD);
    let got = own.fetch("b", false);
    assert!(got.is_err(), "{got:?}");
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
