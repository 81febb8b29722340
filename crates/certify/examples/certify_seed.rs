//! Writes a module and a guarded one as seeds for the fuzzer: `cargo run --example certify_seed CORPUS`. Each target has
//! a folder of its name there.

use std::error::Error;
use std::path::Path;

#[path = "../tests/made/mod.rs"]
mod made;

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = std::env::args_os().nth(1).ok_or("name a folder")?;
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&corpus).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    let module = made::module();
    write("rewrite", "made", &module.write()?)?;
    // The target takes what follows a byte of ones as the file.
    let guarded = made::guard(&module).ok_or("the module cannot be guarded")?;
    write("verify", "guarded", &[&[0xff], &guarded[..]].concat())?;
    Ok(())
}
