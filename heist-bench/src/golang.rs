//! Finds Go and builds the program that runs the same problems there.

use crate::cli::Go;
use crate::system::{self, Scratch};
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("go/main.go");
const MODULE: &str = "module heistbench\n\ngo 1.21\n";

/// The Go program, which is built when it is needed first.
pub(crate) struct Program {
    toolchain: Result<Toolchain, String>,
    built: OnceCell<Result<(Scratch, PathBuf), String>>,
}

struct Toolchain {
    command: PathBuf,
    version: String,
}

impl Program {
    /// Looks where it was told to. Not to find Go on `PATH` is no error.
    pub(crate) fn find(go: &Go) -> Result<Program, String> {
        let toolchain = match go {
            Go::Off => Err("off".into()),
            Go::Auto => match system::on_path("go") {
                Some(command) => Toolchain::at(command),
                None => Err("no Go toolchain".into()),
            },
            Go::At(path) => Ok(Toolchain::at(path.clone()).map_err(|error| {
                format!("--go {}: {error}; it takes auto, off, or a go command", path.display())
            })?),
        };
        Ok(Program { toolchain, built: OnceCell::new() })
    }

    /// Which Go, or why none.
    pub(crate) fn version(&self) -> &str {
        match &self.toolchain {
            Ok(toolchain) => &toolchain.version,
            Err(reason) => reason,
        }
    }

    /// The built program, or why there is none.
    pub(crate) fn binary(&self) -> Result<&Path, String> {
        let built = self.built.get_or_init(|| self.build());
        built.as_ref().map(|(_, binary)| binary.as_path()).map_err(Clone::clone)
    }

    fn build(&self) -> Result<(Scratch, PathBuf), String> {
        let toolchain = self.toolchain.as_ref().map_err(Clone::clone)?;
        let failed = |why: &str| format!("go build failed: {why}");
        let scratch = Scratch::new("go").map_err(|error| failed(&error.to_string()))?;
        let folder = scratch.path();
        for (name, text) in [("main.go", SOURCE), ("go.mod", MODULE)] {
            fs::write(folder.join(name), text).map_err(|error| failed(&error.to_string()))?;
        }
        let binary = folder.join("heistbench");
        let mut command = Command::new(&toolchain.command);
        command.arg("build").arg("-o").arg(&binary).current_dir(folder);
        // This toolchain and this module, whatever is configured elsewhere.
        command.env("GOTOOLCHAIN", "local").env("GOWORK", "off").env("GOFLAGS", "");
        command.env("CGO_ENABLED", "0");
        if std::env::var_os("HOME").is_none() && std::env::var_os("GOCACHE").is_none() {
            command.env("GOCACHE", folder.join("cache"));
        }
        let output = command.output().map_err(|error| failed(&error.to_string()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = text.lines().find(|line| !line.starts_with('#'));
            return Err(failed(line.unwrap_or("it did not say why")));
        }
        Ok((scratch, binary))
    }
}

impl Toolchain {
    fn at(command: PathBuf) -> Result<Toolchain, String> {
        let output = Command::new(&command).arg("version").env("GOTOOLCHAIN", "local").output();
        let output = output.map_err(|error| format!("cannot run it ({error})"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["go", "version", version, ..] if output.status.success() => {
                Ok(Toolchain { version: version.to_owned(), command })
            }
            _ => Err("'go version' says nothing of the kind".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_path_is_an_error_and_off_is_none() {
        let error = Program::find(&Go::At("/nonexistent/go".into())).err().unwrap();
        assert!(error.contains("auto, off"), "{error}");
        let error = Program::find(&Go::At("/bin/true".into())).err().unwrap();
        assert!(error.contains("auto, off"), "{error}");
        let off = Program::find(&Go::Off).unwrap();
        assert_eq!(off.version(), "off");
        assert!(off.binary().is_err());
    }
}
