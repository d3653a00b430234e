import type { CallResult, NodeMethod, NodeRegister } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "../../packages/server/testing/raw-node.ts";
import type { AttackedServer } from "./scene.ts";

/** A node-unit that says of itself what it likes. Rejects with the server's words when it is not admitted. */
export interface RawUnit {
  readonly raw: RawNode;
  readonly address: string;
  call<M extends NodeMethod>(method: M, params: object): Promise<CallResult<M>>;
}

export async function rawUnit(
  server: AttackedServer,
  token: string,
  changes: Partial<NodeRegister> = {},
): Promise<RawUnit> {
  const raw = await connectRawNode({ url: server.url });
  const admitted = raw.register({ token: server.secretOf(token), ...changes });
  admitted.catch(() => {});
  await Promise.race([admitted, raw.closed.then(() => Promise.reject(new Error(refusalOf(raw))))]);
  let lastId = 0;
  return {
    raw,
    address: raw.key.address,
    async call(method, params) {
      const id = ++lastId;
      raw.send({ type: "request", id, method, params });
      const { result, error } = await raw.receive("response", (reply) => reply.id === id);
      if (error) throw new Error(`${error.code}: ${error.message}`);
      return result as CallResult<typeof method>;
    },
  };
}

function refusalOf({ received }: RawNode): string {
  const [said] = received.filter((message) => message.type === "error");
  return said ? `${said.code}: ${said.message}` : "closed";
}
