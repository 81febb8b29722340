//! The validators of others: the schema of OASIS for SARIF, a schema for JUnit XML, and the kernel's own reader of KTAP.
//!
//! Debian has the programs and cargo's registry the schema. Both are fetched once, and kept in Guardrail's cache.

use guardrail_tests::{ensure, root};
use guardrail_vm::packages::{Fetch, Packages};
use guardrail_vm::{Cache, Error, kernels};
use libtest_mimic::Failed;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The trees' names in the cache. Their numbers change with what is in them.
const PROGRAMS: &str = "validators-1";
const SCHEMAS: &str = "schemas-1";
/// Debian's packages: the validator of JSON schemas, that of XML schemas, and the libraries that they load.
const PACKAGES: [&str; 6] = [
    "python3-jsonschema/bookworm",
    "python3-attr/bookworm",
    "python3-pyrsistent/bookworm",
    "libxml2-utils/bookworm",
    "libxml2/bookworm",
    "libicu72/bookworm",
];
/// The crate (MIT) that brings the schema of OASIS, sarif-schema-2.1.0.json, with its digest: Guardrail itself has no copy.
const CRATE: (&str, &str) = ("serde-sarif", "0.8.0");
const SARIF_DIGEST: &str = "af47e7b67f24efe74076621fd3a5fbe7398add9e84fe820c971219a385895cea";

/// All validators, ready to be run.
pub struct Validators {
    programs: PathBuf,
    sarif: PathBuf,
    kunit: PathBuf,
    folder: tempfile::TempDir,
}

impl Validators {
    /// Fetches what the cache does not have.
    pub fn open() -> Result<Validators, Failed> {
        let packages = Packages::new(&Cache::open()?);
        let programs = packages.ensure_tree(PROGRAMS, "validators of tests", Fetch::Exactly(&PACKAGES))?;
        let schemas = packages.cache().ensure_tree(SCHEMAS, fetch_schema)?;
        let kunit = kernels::tools(&packages, &kernels::find(&packages, "6.1")?)?.join("tools/testing/kunit");
        let sarif = schemas.join("sarif.json");
        let digest = format!("{:x}", Sha256::digest(fs::read(&sarif)?));
        ensure(digest == SARIF_DIGEST, || format!("{}: its digest is {digest}", sarif.display()))?;
        Ok(Validators { programs, sarif, kunit, folder: tempfile::tempdir()? })
    }

    /// What is wrong with a file of SARIF, a line each; nothing where it is valid.
    pub fn sarif(&self, text: &[u8]) -> Result<String, Failed> {
        let file = self.file("sarif", text)?;
        let output = self.python("validate.py", [&self.sarif, &file])?;
        Ok(said(&output, "the validator of JSON")?)
    }

    /// What is wrong with JUnit XML; nothing where it is valid.
    pub fn junit(&self, text: &[u8]) -> Result<String, Failed> {
        self.xml(&root().join("tests/fixtures/ci/junit.xsd"), text)
    }

    fn xml(&self, schema: &Path, text: &[u8]) -> Result<String, Failed> {
        let file = self.file("xml", text)?;
        let output = Command::new(self.programs.join("usr/bin/xmllint"))
            .args(["--noout", "--nonet", "--schema"])
            .args([schema, &file])
            .env("LD_LIBRARY_PATH", self.programs.join("usr/lib/x86_64-linux-gnu"))
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => Ok(String::new()),
            // The file is not well-formed, or breaks the schema.
            Some(1 | 3) => Ok(text),
            _ => Err(format!("xmllint failed ({}): {text}", output.status).into()),
        }
    }

    /// What the kernel's reader makes of KTAP.
    pub fn ktap(&self, text: &[u8]) -> Result<Value, Failed> {
        let file = self.file("ktap", text)?;
        let output = self.python("read_ktap.py", [&self.kunit, &file])?;
        Ok(serde_json::from_str(&said(&output, "the reader of KTAP")?)?)
    }

    fn file(&self, ending: &str, text: &[u8]) -> Result<PathBuf, Failed> {
        let number = fs::read_dir(self.folder.path())?.count();
        let file = self.folder.path().join(format!("{number}.{ending}"));
        fs::write(&file, text)?;
        Ok(file)
    }

    fn python(&self, script: &str, words: [&Path; 2]) -> Result<Output, Failed> {
        let output = Command::new("python3")
            .arg(root().join("tests/fixtures/ci").join(script))
            .args(words)
            .env("PYTHONPATH", self.programs.join("usr/lib/python3/dist-packages"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()?;
        Ok(output)
    }
}

/// What a program printed, if it succeeded.
fn said(output: &Output, what: &str) -> Result<String, String> {
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Has cargo fetch the crate with the schema, of which nothing is built.
fn fetch_schema(folder: &Path) -> guardrail_vm::Result<()> {
    let failed = |why: String| Error::BadValue(format!("the schema of SARIF cannot be fetched: {why}"));
    let (name, version) = CRATE;
    let manifest = format!(
        "[package]\nname = \"schemas\"\nedition = \"2021\"\n[lib]\npath = \"none.rs\"\n\
         [dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    let work = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let put = |name: &str, text: &str| fs::write(work.path().join(name), text);
    put("Cargo.toml", &manifest)
        .and_then(|()| put("none.rs", ""))
        .map_err(|error| failed(error.to_string()))?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = |words: &[&str]| -> Result<String, String> {
        let mut command = Command::new(&cargo);
        command.args(["metadata", "--format-version", "1", "--quiet"]).args(words).current_dir(work.path());
        said(&command.output().map_err(|error| error.to_string())?, "cargo metadata")
    };
    // What is there already needs no network.
    let text = metadata(&["--offline"]).or_else(|_| metadata(&[])).map_err(failed)?;
    let about: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let found = about["packages"].as_array().into_iter().flatten().find(|package| package["name"] == name);
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let source = manifest
        .and_then(|manifest| Path::new(manifest).parent())
        .map(|source| source.join("src/schema.json"));
    let source = source.ok_or_else(|| failed(format!("cargo does not say where {name} is")))?;
    fs::copy(&source, folder.join("sarif.json")).map_err(|error| failed(error.to_string()))?;
    Ok(())
}
