//! `--hosts`: a file, standard input, or a list; its faults shown with their lines.

use std::io::Read;
use std::path::Path;

use tuplane_core::fault::{Fault, Spanned};
use tuplane_testbed::hosts::{self, Host};

use crate::failure::{Failure, Outcome};
use crate::faults;
use crate::output::Output;

/// The largest hosts file that is read.
const LONGEST: u64 = 4 << 20;

/// Reads what `--hosts` names: `-` for standard input, `h1,h2` for a list, else a file.
pub(crate) fn read(given: &str, output: &mut Output) -> Outcome<Vec<Spanned<Host>>> {
    if given.trim().is_empty() {
        return Err(Failure::Usage(
            "no host is named: give a hosts file, `-` for standard input, or a list h1,h2".into(),
        ));
    }
    let path = Path::new(given);
    let (name, text) = if given == "-" {
        ("<stdin>", text(std::io::stdin().lock(), given)?)
    } else if given.contains(',') && !path.exists() {
        return hosts::parse_list(given).map_err(|faults| {
            // One entry a line, as the faults' places have it.
            let shown = faults::render_entries(
                "--hosts",
                &hosts::entries(given).join("\n"),
                &faults,
                output.error_colors(),
            );
            refuse("--hosts", &shown, &faults, output)
        });
    } else if path.is_dir() {
        return Err(Failure::Usage(format!("{given} is a folder; give a hosts file")));
    } else {
        let file = std::fs::File::open(path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound => Failure::Usage(format!(
                "there is no hosts file {given}; a host alone is written with a comma: `{given},`"
            )),
            _ => Failure::file("read", path, &cause),
        })?;
        (given, text(file, given)?)
    };
    hosts::parse(&text).map_err(|faults| {
        let shown = faults::render(name, &text, &faults, output.error_colors());
        refuse(name, &shown, &faults, output)
    })
}

fn text(from: impl Read, name: &str) -> Outcome<String> {
    let mut bytes = Vec::new();
    from.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|cause| Failure::file("read", Path::new(name), &cause))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Failure::Usage(format!("{name} is longer than 4 MiB; that is no hosts file")));
    }
    String::from_utf8(bytes).map_err(|cause| {
        Failure::Usage(format!("{name} is not UTF-8 text (byte {})", cause.utf8_error().valid_up_to()))
    })
}

/// Shows faults on standard error, where they are as `shown`, and in documents as an error's list.
fn refuse(name: &str, shown: &str, faults: &[Fault], output: &mut Output) -> Failure {
    output.aside(shown);
    if !output.is_text() {
        let listed: Vec<faults::FaultView<'_>> = faults.iter().map(Into::into).collect();
        let body = serde_json::json!({
            "kind": "refused",
            "message": format!("{name} cannot be used as it is"),
            "exit": Failure::Shown.code(),
            "file": name,
            "faults": listed,
        });
        if let Err(failure) = output.document("error", &body) {
            return failure;
        }
    }
    Failure::Shown
}
