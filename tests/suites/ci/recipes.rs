//! The example repository, and a small runner for its recipes: it executes their steps as a server of CI would.

use super::yaml;
use guardrail_tests::{ensure, program, root};
use libtest_mimic::Failed;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the example.
pub const EXAMPLE: &str = "examples/out-of-tree-driver";
/// The recipes in it.
pub const GITHUB: &str = ".github/workflows/guardrail.yml";
pub const GITLAB: &str = ".gitlab-ci.yml";
pub const LAVA: &str = "ci/lava-job.yml";
/// Variables that stay as they are: the cache of this machine has what a job's own one would fetch.
const KEPT: [&str; 1] = ["GUARDRAIL_CACHE"];
/// The program of LAVA by which a job reports a case. This one only writes down what it was called with.
const LAVA_TEST_CASE: &str = "#!/bin/sh
name=$1 result=$3
if [ \"$2\" = --shell ]; then
	shift 2
	\"$@\" && result=pass || result=fail
fi
echo \"$name $result\" >>\"$LAVA_CASES\"
";

/// A clone of the example, as a job has it.
pub struct Clone {
    folder: tempfile::TempDir,
}

/// How a job ended.
pub struct Ran {
    /// The exit status of the first step that failed; 0 where none did.
    pub status: i32,
    /// What all steps printed.
    pub said: String,
    /// The files that steps of others take.
    pub taken: Vec<String>,
}

impl Clone {
    /// A clone whose job finds the built program.
    pub fn new() -> Result<Clone, Failed> {
        let clone = Clone { folder: tempfile::tempdir()? };
        copy(&root().join(EXAMPLE), &clone.top())?;
        let bin = clone.folder.path().join("bin");
        fs::create_dir(&bin)?;
        symlink(program(), bin.join("guardrail"))?;
        fs::write(bin.join("lava-test-case"), LAVA_TEST_CASE)?;
        fs::set_permissions(bin.join("lava-test-case"), PermissionsExt::from_mode(0o755))?;
        let made = Command::new("git").args(["init", "--quiet"]).current_dir(clone.top()).status()?;
        ensure(made.success(), || "git init failed".into())?;
        Ok(clone)
    }

    /// The top folder of the clone.
    pub fn top(&self) -> PathBuf {
        self.folder.path().join("clone")
    }

    /// A file of the clone.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, Failed> {
        fs::read(self.top().join(name)).map_err(|error| format!("{name}: {error}").into())
    }

    /// A file of JSON of the clone.
    pub fn json(&self, name: &str) -> Result<Value, Failed> {
        Ok(serde_json::from_slice(&self.read(name)?)?)
    }

    /// Replaces a text that the file has once.
    pub fn edit(&self, name: &str, old: &str, new: &str) -> Result<(), Failed> {
        let text = String::from_utf8(self.read(name)?)?;
        ensure(text.matches(old).count() == 1, || format!("{name} does not have '{old}' once"))?;
        Ok(fs::write(self.top().join(name), text.replace(old, new))?)
    }

    /// What LAVA got: a line for each case, with its name and result.
    pub fn cases(&self) -> Result<Vec<(String, String)>, Failed> {
        let text = fs::read_to_string(self.folder.path().join("cases"))?;
        let case =
            |line: &str| line.split_once(' ').map(|(name, result)| (name.to_owned(), result.to_owned()));
        Ok(text.lines().filter_map(case).collect())
    }

    /// Executes commands in a shell that ends at the first failure. The variables are those of the recipe.
    pub fn run(
        &self,
        shell: &str,
        commands: &str,
        variables: &[(String, String)],
    ) -> Result<(i32, String), Failed> {
        let bin = self.folder.path().join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let variables = variables.iter().filter(|(name, _)| !KEPT.contains(&name.as_str()));
        let output = Command::new(shell)
            .args(["-e", "-c", commands])
            .current_dir(self.top())
            .envs(variables.map(|(name, value)| (name, value)))
            .env("PATH", path)
            .env("LAVA_CASES", self.folder.path().join("cases"))
            .output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
    }

    /// Executes the job of the workflow of GitHub.
    pub fn github(&self) -> Result<Ran, Failed> {
        let workflow = yaml::read(&self.top().join(GITHUB))?;
        let job = &workflow["jobs"]["check"];
        let variables = pairs(&job["env"], |value| !value.contains("${{"), "");
        let mut ran = Ran { status: 0, said: String::new(), taken: Vec::new() };
        for step in items(&job["steps"]) {
            let always = step["if"].as_str().is_some_and(|when| when.starts_with("always()"));
            if ran.status != 0 && !always {
                continue;
            }
            if let Some(commands) = step["run"].as_str() {
                let (status, said) = self.run("bash", commands, &variables)?;
                ran.status = if ran.status == 0 { status } else { ran.status };
                ran.said += &said;
            } else if always {
                let files = ["sarif_file", "path"].map(|name| step["with"][name].as_str());
                ran.taken.extend(files.into_iter().flatten().map(str::to_owned));
            }
        }
        Ok(ran)
    }

    /// Executes the job of the pipeline of GitLab.
    pub fn gitlab(&self) -> Result<Ran, Failed> {
        let job = &yaml::read(&self.top().join(GITLAB))?["guardrail"];
        let variables = pairs(&job["variables"], |_| true, &self.top().display().to_string());
        let lines: Vec<&str> = items(&job["script"]).iter().filter_map(Value::as_str).collect();
        let (status, said) = self.run("bash", &lines.join("\n"), &variables)?;
        let reports = job["artifacts"]["reports"].as_object().into_iter().flatten();
        let taken = reports.filter_map(|(_, file)| file.as_str()).map(str::to_owned).collect();
        Ok(Ran { status, said, taken })
    }

    /// Executes the job of a lab with LAVA.
    pub fn lava(&self) -> Result<Ran, Failed> {
        let job = yaml::read(&self.top().join(LAVA))?;
        let test = items(&job["actions"]).iter().find_map(|action| action.get("test")).ok_or("no test")?;
        let definition = &test["definitions"][0]["repository"];
        let variables = pairs(&definition["params"], |_| true, "");
        let steps: Vec<&str> = items(&definition["run"]["steps"]).iter().filter_map(Value::as_str).collect();
        let (status, said) = self.run("sh", &steps.join("\n"), &variables)?;
        Ok(Ran { status, said, taken: Vec::new() })
    }
}

impl Ran {
    /// An error with all that was printed, unless the job ended with this status.
    pub fn with(self, status: i32) -> Result<Ran, Failed> {
        ensure(self.status == status, || format!("the job ended with {}\n{}", self.status, self.said))?;
        Ok(self)
    }
}

/// The elements of a list.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The variables of a recipe that are wanted. GitLab's name of the folder is replaced.
fn pairs(value: &Value, wanted: impl Fn(&str) -> bool, folder: &str) -> Vec<(String, String)> {
    let all = value.as_object().into_iter().flatten();
    let all = all.filter_map(|(name, value)| Some((name.clone(), value.as_str()?)));
    all.filter(|(_, value)| wanted(value))
        .map(|(name, value)| (name, value.replace("$CI_PROJECT_DIR", folder)))
        .collect()
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<(), Failed> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, target) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
