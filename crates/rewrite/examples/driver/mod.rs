//! The driver that a command line names: `PROGRAM VMLINUZ DRIVER [MODULE…]`.
//! The modules are those that the driver needs.

use guardrail_binfmt::module::unpack;
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_kernel::isolation::Isolation;
use guardrail_rewrite::Object;
use guardrail_rewrite::border::annotations::{self, Border};
use std::path::Path;

/// Works out what is known of the driver's border; fails where the kernel or a module cannot be read.
pub fn border(program: &str) -> Result<Border, Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernel, driver, needed @ ..] = arguments.as_slice() else {
        return Err(format!("usage: {program} VMLINUZ DRIVER [MODULE…]").into());
    };
    let kernel = KernelImage::open(Path::new(kernel))?;
    let needed =
        needed.iter().map(|path| ModuleImage::open(Path::new(path))).collect::<Result<Vec<_>, _>>()?;
    let image = ModuleImage::open(Path::new(driver))?;
    let isolation = Isolation::for_driver(&kernel, &image, &needed, Vec::new())?;
    let object = Object::read(driver, &unpack(driver, std::fs::read(driver)?)?)?;
    Ok(annotations::border(&isolation, &object))
}
