//! `guardrail.toml` sets options. Nothing here needs a network, a cache or a guest.

use std::fs;
use std::process::Command;

/// Runs the program in a folder with this file: exit status, standard output, the last line of standard error.
fn run(text: &str, variables: &[(&str, &str)], words: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("guardrail.toml"), text).unwrap();
    let output = Command::new(guardrail_tests::program())
        .args(words.split(' '))
        .current_dir(folder.path())
        .env("GUARDRAIL_CACHE", folder.path().join("cache"))
        .env_remove("GUARDRAIL_CONFIG")
        .env_remove("GUARDRAIL_PROFILE")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().last().unwrap_or_default().to_owned();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), last)
}

const SAMPLE: &str = "[check]\nkernel = \"nowhere\"\nsmp = 9\nworkload = \"load\"\n
[profile.ci.check]\nsmp = 3\n[profile.none.survey]\njobs = 3\n";

#[test]
fn what_the_file_sets_counts_unless_the_command_line_does() {
    let (status, _, said) = run(SAMPLE, &[], "check e1000");
    assert!(status == Some(2) && said.contains("invalid value '9' for '--smp"), "{said}");
    for (variables, words) in [
        (&[][..], "check e1000 --smp 2"),
        (&[], "check e1000 --smp=2"),
        (&[], "check e1000 --profile ci"),
        (&[], "--profile=ci check e1000"),
        (&[("GUARDRAIL_PROFILE", "ci")], "check e1000"),
    ] {
        let (status, _, said) = run(SAMPLE, variables, words);
        assert!(status == Some(2) && said.contains("there is no kernel named 'nowhere'"), "{words}: {said}");
    }
    let (_, _, said) = run(SAMPLE, &[], "check e1000 --smp 1 --kernel elsewhere");
    assert!(said.contains("there is no kernel named 'elsewhere'"), "{said}");
    // It stands back for an option that excludes it.
    let (_, _, said) = run(SAMPLE, &[], "check e1000 --smp 1 --exec /bin/sh");
    assert!(said.contains("there is no kernel named 'nowhere'"), "{said}");
    let (status, _, said) = run(SAMPLE, &[("GUARDRAIL_CONFIG", "")], "check e1000 --kernel none");
    assert!(status == Some(2) && said.contains("there is no kernel named 'none'"), "{said}");
}

#[test]
fn what_counts_is_shown_with_where_it_comes_from() {
    let (status, shown, _) = run(SAMPLE, &[], "config show --profile ci");
    let row = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert_eq!(status, Some(0));
    assert!(row("--kernel ").contains("nowhere") && row("--kernel ").ends_with("guardrail.toml"), "{shown}");
    assert!(row("--smp ").ends_with("3                           guardrail.toml, profile ci"), "{shown}");
    assert!(row("--timeout ").ends_with("600                         built in"), "{shown}");
    let (_, shown, _) = run(SAMPLE, &[], "config show survey --profile none");
    assert!(shown.contains("profile none"), "{shown}");
    let (status, _, said) = run(SAMPLE, &[], "config show chek");
    assert!(status == Some(2) && said.ends_with("there is no command 'chek'; did you mean check?"), "{said}");
}

#[test]
fn what_does_not_exist_is_refused_whatever_is_run() {
    for (text, why) in [
        ("[chek]\n", "guardrail.toml: there is no command 'chek'; did you mean check?"),
        (
            "[check]\nkernl = \"6.1\"\n",
            "guardrail.toml: there is no option of [check] 'kernl'; did you mean kernel?",
        ),
        ("[check\n", "guardrail.toml: line 1: "),
        ("[check]\non-finding = \"touch /tmp/x\"\n", "guardrail.toml: [check] cannot set 'on-finding'"),
        ("[profile.x.check]\nout = \"/etc\"\n", "guardrail.toml: [check] cannot set 'out'"),
    ] {
        let (status, _, said) = run(text, &[], "list kernels");
        assert!(status == Some(2) && said.contains(why), "{text}: {said}");
    }
    let (status, _, said) = run(SAMPLE, &[], "check e1000 --profile co");
    assert!(status == Some(2) && said.contains("there is no profile 'co'"), "{said}");
    assert_eq!(run("[kinds]\nleak = \"warn\"\n", &[], "list kernels").0, Some(0));
    let (status, _, said) = run("", &[("GUARDRAIL_CONFIG", "/nowhere/x.toml")], "list kernels");
    assert!(status != Some(0) && said.contains("/nowhere/x.toml"), "{said}");
}

#[test]
fn a_pipe_is_no_file_and_a_profile_of_the_environment_may_be_for_other_folders() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("guardrail.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (status, _, said) = run("", &[("GUARDRAIL_CONFIG", pipe.to_str().unwrap())], "list kernels");
    assert!(status == Some(2) && said.ends_with("guardrail.toml is no file"), "{said}");
    let variables = [("GUARDRAIL_PROFILE", "ci"), ("GUARDRAIL_CONFIG", "")];
    assert_eq!(run("", &variables, "list kernels").0, Some(0));
    let (status, _, said) = run("", &variables, "list kernels --profile ci");
    assert!(status == Some(2) && said.contains("and so no profile 'ci'"), "{said}");
}

/// A file that the user names may set what a file that lies in the folder may not.
#[test]
fn a_file_that_is_named_may_set_all_options() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "[check]\non-finding = \"true\"\nkernel = \"nowhere\"\n").unwrap();
    let named = [("GUARDRAIL_CONFIG", file.to_str().unwrap())];
    let (status, _, said) = run("[chek]\n", &named, "check e1000");
    assert!(status == Some(2) && said.contains("there is no kernel named 'nowhere'"), "{said}");
}
