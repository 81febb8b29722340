//! The kernel's own tool reads what is exported for its runtime verification, and the kernel's headers take the monitors.

use guardrail_tests::{guardrail, root};
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, kbuild, kernels};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The words of a C file, without comments, qualifiers, and commas behind last elements.
fn words(text: &str) -> String {
    let mut plain = String::new();
    for (at, part) in text.split("*/").enumerate() {
        let code = part.split_once("/*").map_or(part, |(code, _)| code);
        plain.push_str(if at == 0 || text.contains("/*") { code } else { part });
    }
    let plain = plain.replace("static const struct", "static struct");
    let plain: String = plain.chars().filter(|c| !c.is_whitespace()).collect();
    plain.replace(",}", "}")
}

/// Makes a monitor of a type by the kernel's tool, in a folder named as the monitor.
fn made(tool: &Path, folder: &Path, dot: &str, kind: &str) {
    let program = tool.join("tools/verification/dot2/dot2k");
    let done = Command::new("python3")
        .arg(&program)
        .args(["-d", dot, "-t", kind])
        .env("PYTHONPATH", tool.join("tools/verification"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder)
        .output()
        .expect("python3 can be run");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && !said.contains("Sorry"), "{dot}: {said}");
}

#[test]
fn the_kernels_tool_makes_the_same_monitors_and_its_headers_take_them() {
    let folder = tempfile::tempdir().unwrap();
    let packages = Packages::new(&Cache::open().unwrap());
    let kernel = kernels::find(&packages, "6.1").unwrap();
    let tool = kernels::tools(&packages, &kernel).unwrap();
    // The tool looks for its templates here.
    fs::create_dir(folder.path().join("dot2k")).unwrap();
    let templates = tool.join("tools/verification/dot2/dot2k_templates");
    std::os::unix::fs::symlink(templates, folder.path().join("dot2k/rv_templates")).unwrap();
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let mut uses = String::new();
    let mut includes = String::from(
        "#include <linux/interrupt.h>\n#include <linux/timer.h>\n#include <linux/pci.h>\n#include <linux/netdevice.h>\n\
         #include <linux/libata.h>\n#include <sound/pcm.h>\n#include <linux/module.h>\n#include <rv/automata.h>\n",
    );
    for name in super::names() {
        let monitor = format!("{name}_protocol");
        let export = |form: &str| guardrail(&["protocol", "export", &name, "--as", form]).stdout;
        let dot = format!("{monitor}.dot");
        fs::write(folder.path().join(&dot), export("rv")).unwrap();
        for kind in ["global", "per_task", "per_cpu"] {
            made(&tool, folder.path(), &dot, kind);
        }
        let header = fs::read_to_string(folder.path().join(&monitor).join(format!("{monitor}.h"))).unwrap();
        assert_eq!(words(&header), words(&export("rv-c")), "{name}");
        fs::write(source.join(format!("{monitor}.h")), header).unwrap();
        let _ = writeln!(
            includes,
            "#undef INVALID_STATE\n#include \"{monitor}.h\"\nDECLARE_AUTOMATA_HELPERS({monitor}, unsigned char)"
        );
        let _ = writeln!(
            uses,
            "\tpr_info(\"%s %d\\n\", model_get_state_name_{monitor}(model_get_initial_state_{monitor}()), \
             model_get_next_state_{monitor}(model_get_initial_state_{monitor}(), 0));"
        );
    }
    let text =
        format!("{includes}\nint init_module(void)\n{{\n{uses}\treturn 0;\n}}\nMODULE_LICENSE(\"GPL\");\n");
    fs::write(source.join("monitors.c"), text).unwrap();
    fs::write(source.join("Kbuild"), "obj-m := monitors.o\n").unwrap();
    let tree = folder.path().join("tree");
    let rest: [&OsStr; 2] = [tree.as_os_str(), source.as_os_str()];
    kbuild::run(&packages, &kernel, &root().join("scripts/kbuild"), &[], &rest).unwrap();
    assert!(source.join("monitors.ko").is_file());
}
