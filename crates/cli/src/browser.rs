//! Opens a page in the user's browser, where there is one to see it.

use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

/// Variables that are no business of a browser, whose environment every program of this user can read.
const SECRETS: [&str; 4] = ["EKIDEN_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// Opens it, if somebody sits at a terminal of this machine. What comes of it is nobody's business: the address is printed too.
pub(crate) fn open(url: &str) {
    if !is_wanted() {
        return;
    }
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut opener = Command::new(program);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for secret in SECRETS {
        opener.env_remove(secret);
    }
    if let Ok(mut opener) = opener.spawn() {
        // It may stay as long as the browser does; whoever waits for it waits for that.
        std::thread::spawn(move || opener.wait());
    }
}

/// Not in a pipe, not on another machine, and not without a display.
fn is_wanted() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_seen = cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
    io::stdout().is_terminal() && is_seen && !is_set("SSH_CONNECTION") && !is_set("CI")
}
