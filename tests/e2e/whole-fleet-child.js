// The child of a deployment with `grants`: it submits a job and takes a nonce with the token of its term, again and again,
// and keeps the token where the test finds it. Each request has its own id, so a repeat after a lost answer is one job.
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";

const { TENURE_URL, TENURE_TOKEN, TENURE_DEPLOYMENT_ID, TENURE_FENCING_TOKEN } = process.env;
const { PASSWORD = "", POOL, SIGNER } = process.env;
writeFileSync("given", `${TENURE_TOKEN}`);
const headers = { authorization: `Bearer ${TENURE_TOKEN}`, "content-type": "application/json" };

/** Until the server accepts it: the instance may be restarting. */
async function post(path, body) {
  for (;;) {
    const sent = { method: "POST", headers, body: JSON.stringify(body) };
    const answer = await fetch(`${TENURE_URL}/api/v1${path}`, sent).catch(() => undefined);
    if (answer?.ok) return answer.json();
    if (answer) console.error(`${path}: ${answer.status} ${await answer.text()}`);
    await wait(200);
  }
}

for (let nth = 0; ; nth++) {
  const request_id = `${TENURE_DEPLOYMENT_ID}-${TENURE_FENCING_TOKEN}-${nth}`;
  const { nonce, hold_id } = await post(`/signers/${SIGNER}/nonces`, { request_id });
  const tx_hash = `0x${createHash("sha256").update(request_id).digest("hex")}`;
  await post(`/signers/${SIGNER}/nonces/${nonce}/used`, { hold_id, tx_hash });
  const password_sha256 = createHash("sha256").update(PASSWORD).digest("hex");
  const payload = {
    term: Number(TENURE_FENCING_TOKEN),
    uid: process.getuid(),
    nonce,
    password_sha256,
  };
  await post("/jobs", { request_id, pool: POOL, payload, pending_ms: 120_000 });
  await wait(50);
}
