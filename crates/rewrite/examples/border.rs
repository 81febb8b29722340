//! Prints what is known of the calls between a driver and the kernel: `border VMLINUZ DRIVER [MODULE…]`.
//! The modules are those that the driver needs.

mod driver;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let border = driver::border("border")?;
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
