import {
  type CallParams,
  type CallResult,
  secretsOf,
  TenureError,
  unfitness,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { Secrets } from "../secrets/secrets.ts";
import type { Db } from "../store/db.ts";
import { type DeploymentNode, readerOf, termOf } from "./deployment-node.ts";
import { readOwnSecrets } from "./store/secret-delivery-store.ts";

export interface DeliverSecretsOptions {
  db: Db;
  secrets: Pick<Secrets, "open">;
}

/** A frame that is too large would close the connection of the node. Six times as long as JSON, it still fits. */
const VALUES_BYTES_MAX = 1_048_576;

/** Answers `deployment.secrets`: the values for the node that runs the deployment in this term, and for no other. */
export function createDeliverSecrets({ db, secrets }: DeliverSecretsOptions) {
  return async (
    node: DeploymentNode,
    { id, generation }: CallParams<"deployment.secrets">,
  ): Promise<CallResult<"deployment.secrets">> => {
    const found = await readOwnSecrets(db, termOf(node), { id, generation });
    // The same for a deployment that does not exist: a node of another tenant must not learn of it.
    if (!found)
      throw new TenureError("FENCED", { resource: `deployment ${id}`, fencing_token: generation });
    const [unfit] = unfitness(found.row, readerOf(node), matchWhole);
    if (unfit)
      throw new TenureError("FORBIDDEN", {
        reason: `this node may not run the deployment: ${unfit}`,
      });
    const values = secrets.open(found.sealed, secretsOf(found.row.env));
    const bytes = Object.values(values).reduce((sum, value) => sum + Buffer.byteLength(value), 0);
    if (bytes > VALUES_BYTES_MAX)
      throw new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: VALUES_BYTES_MAX });
    return { values };
  };
}
