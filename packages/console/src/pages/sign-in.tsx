import { useState } from "preact/hooks";
import { signIn } from "../data.ts";
import { Text } from "../parts/text.tsx";
import { asApiError } from "../resource.ts";

export function SignInPage() {
  const [failure, setFailure] = useState("");
  const [isBusy, setBusy] = useState(false);

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const token = String(new FormData(form).get("token") ?? "").trim();
    setBusy(true);
    setFailure("");
    try {
      await signIn(token);
    } catch (error) {
      setFailure(asApiError(error).message);
      setBusy(false);
    }
  }

  return (
    <main class="sign-in">
      {/* POST, so that the token never appears in a URL, even without scripts. */}
      <form class="card" method="post" onSubmit={submit}>
        <img src="/icon.svg" alt="" width="40" height="40" />
        <h1>Sign in to Tenure</h1>
        <p class="quiet">
          With a token of role <strong>admin</strong> to act, or <strong>viewer</strong> to look.
        </p>
        <label class="field">
          <span>Token</span>
          <input
            name="token"
            type="password"
            autocomplete="current-password"
            required
            aria-invalid={failure !== ""}
            aria-describedby="sign-in-failure"
          />
        </label>
        <p id="sign-in-failure" class="form-failure" role="alert">
          {failure && <Text>{failure}</Text>}
        </p>
        <button type="submit" class="button button-primary" disabled={isBusy}>
          {isBusy ? "Signing in …" : "Sign in"}
        </button>
      </form>
    </main>
  );
}
