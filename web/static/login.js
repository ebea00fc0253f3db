// The page that takes a token, and keeps it in a cookie that no script can read.

const form = document.getElementById("login");
const fault = document.getElementById("fault");
const base = document.body.dataset.base;

/** Where to go afterwards: an address of this server, and whole, since a path alone may begin like another host's. */
function destination() {
  const next = new URLSearchParams(location.search).get("next") || `${base}/docs`;
  const target = URL.canParse(next, location.origin) ? new URL(next, location.origin) : null;
  return target?.origin === location.origin ? target.href : `${base}/docs`;
}

async function signIn(token) {
  const answer = await fetch(`${base}/api/session`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (answer.ok) return "";
  const problem = await answer.json().catch(() => ({}));
  return problem.detail || problem.title || `The server answered ${answer.status}.`;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const wrong = await signIn(form.elements.token.value.trim()).catch(() => "The server cannot be reached. Try again.");
  if (!wrong) location.assign(destination());
  fault.textContent = wrong;
  fault.hidden = !wrong;
});
