//! Tells what is known of the calls between a driver and the kernel: `border VMLINUZ DRIVER [MODULE…]`, with the modules that the driver needs.

use guardrail_kernel::isolation::Isolation;
use guardrail_kernel::module::unpack;
use guardrail_kernel::{KernelImage, ModuleImage};
use guardrail_rewrite::Object;
use guardrail_rewrite::interpose::border;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernel, driver, needed @ ..] = arguments.as_slice() else {
        return Err("usage: border VMLINUZ DRIVER [MODULE…]".into());
    };
    let kernel = KernelImage::open(Path::new(kernel))?;
    let needed =
        needed.iter().map(|path| ModuleImage::open(Path::new(path))).collect::<Result<Vec<_>, _>>()?;
    let image = ModuleImage::open(Path::new(driver))?;
    let isolation = Isolation::for_driver(&kernel, &image, &needed)?;
    let object = Object::read(driver, &unpack(driver, std::fs::read(driver)?)?)?;
    let border = border(&isolation, &object);
    println!("imports with a line: {}", border.annotated.join(" "));
    println!("imports without a line: {}", border.unannotated.join(" "));
    for (function, members) in &border.members {
        let members: Vec<_> =
            members.iter().map(|known| format!("{}.{}", known.structure, known.member)).collect();
        println!("{function}: {}", members.join(", "));
    }
    println!("functions with an argument of which nothing is known: {}", border.unknown.join(" "));
    Ok(())
}
