// The script of all pages but the API reference. The pages work without it.

// Buttons that copy.
for (const button of document.querySelectorAll("button[data-copy]")) {
  // Browsers offer the clipboard only where nobody can listen in: over TLS, or on the machine itself.
  button.hidden = !navigator.clipboard;
  // Its name tells screen readers what it copies, so they need to be told of the outcome.
  const status = document.createElement("span");
  status.className = "visually-hidden";
  status.role = "status";
  button.after(status);
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      said = "Selected";
    }
    button.textContent = status.textContent = said;
    setTimeout(() => {
      button.textContent = "Copy";
      status.textContent = "";
    }, 2000);
  });
}

// On a checkbox, Enter would press the first button of its form, which places an order.
for (const box of document.querySelectorAll("input[type=checkbox][form]")) {
  box.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
}

// A form is sent once, even if its button is clicked twice. While many people sign in, one with a password waits for its turn.
for (const form of document.querySelectorAll("form[method=post]")) {
  let isUnderWay = false;
  // A later click is no double click: the user has stopped the page, or gone back to it.
  const allowAgain = () => setTimeout(() => (isUnderWay = false), 1000);
  form.addEventListener("submit", async (event) => {
    if (isUnderWay || form.dataset.turn) event.preventDefault();
    if (isUnderWay) return;
    isUnderWay = true;
    if (!form.dataset.turn) return allowAgain();
    const button = form.querySelector("button");
    const said = document.createElement("p");
    said.role = "status";
    form.append(said);
    button.disabled = true;
    for (let tries = 0; tries < 20; tries++) {
      const turn = await fetch(form.dataset.turn).catch(() => null);
      if (turn?.status !== 503) break;
      const seconds = Number(turn.headers.get("Retry-After")) || 1;
      said.textContent = `The service is busy. Trying again in ${seconds} s.`;
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    }
    said.remove();
    button.disabled = false;
    form.submit();
    allowAgain();
  });
}

// Updates the request beside a form while its fields change.
const quote = { json: JSON.stringify, shell: (text) => `'${text.replaceAll("'", "'\\''")}'` };

// The value of a field as JSON. A `Number` would be exact up to 2^53 only.
const asJson = (field) => {
  const text = field.value || field.dataset.example;
  const isInteger = field.dataset.json === "integer" && /^-?\d+$/.test(text.trim());
  return isInteger ? String(BigInt(text.trim())) : JSON.stringify(text);
};

for (const live of document.querySelectorAll("[data-live]")) {
  const form = document.getElementById(live.dataset.live);
  // Only before the first request.
  const hasExamples = !live.hidden;
  const isExample = (field) => hasExamples && field.dataset.example && !field.value;
  const show = () => {
    const isSent = (field) => field.dataset.json && (field.type === "radio" ? field.checked : field.value || isExample(field));
    const body = `{${[...form.elements].filter(isSent).map((field) => `${JSON.stringify(field.name)}:${asJson(field)}`).join(",")}}`;
    const prefer = form.elements.prefer?.value;
    live.classList.toggle("example", [...form.elements].some(isExample));
    for (const span of live.querySelectorAll("[data-body]")) span.textContent = quote[span.dataset.body](body);
    for (const span of live.querySelectorAll("[data-prefer]")) {
      span.textContent = prefer ? span.dataset.prefer.replace("{}", prefer) : "";
    }
  };
  const follow = () => {
    show();
    // Replaces the last request sent with the next one.
    live.hidden = false;
    if (live.previousElementSibling.matches("div")) live.previousElementSibling.hidden = true;
  };
  form.addEventListener("input", follow);
  form.addEventListener("change", follow);
  // Browsers restore the fields when the user goes back to a page.
  show();
}
