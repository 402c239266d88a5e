// The console works without this. It adds buttons that copy.
for (const button of document.querySelectorAll("button[data-copy]")) {
  // Browsers offer the clipboard only where nobody can listen in: over TLS, or on the machine itself.
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      said = "Selected";
    }
    button.textContent = said;
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}
