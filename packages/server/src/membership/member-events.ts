import type { HostEvent, ViewState } from "@tenure/protocol";
import type { MemberPages } from "./member-pages.ts";
import type { MembersRefresh } from "./members.ts";
import { type LocalNode, readerOf, tenantsOf } from "./node-connection.ts";
import { changeFor } from "./visible-members.ts";

/** Sends the members to connected node-units: the whole list as INIT, then each change. */
export function createMemberEvents(pages: MemberPages) {
  let sentView: ViewState | undefined;

  function sendAll(node: LocalNode): void {
    node.stopSending();
    node.stopSending = pages.send(node.link, readerOf(node));
  }

  return {
    sendAll,
    onRefresh({ changes, view }: MembersRefresh, nodes: Iterable<LocalNode>): void {
      // A view that becomes ready by time alone has no change of a member that would carry it.
      const isViewChanged = view !== sentView;
      sentView = view;
      // Serialized once for all nodes of the same tenants: 4 MB for each of 500 nodes took seconds and gigabytes.
      const serialized = new Map<string, Buffer[]>();
      for (const node of nodes) {
        if (!node.isIntroduced) continue;
        if (isViewChanged) {
          sendAll(node);
          continue;
        }
        const tenants = tenantsOf(node);
        const key = tenants.join(" ");
        const events = serialized.get(key) ?? changes.map((change) => toEvent(change, tenants));
        serialized.set(key, events);
        for (const event of events) node.link.sendText(event);
      }

      function toEvent(
        { seq, ...change }: MembersRefresh["changes"][number],
        tenants: readonly string[],
      ): Buffer {
        return hostEvent({ event: "TERMINAL_CHANGE", view, seq, ...changeFor(change, tenants) });
      }
    },
  };
}

const hostEvent = (event: Omit<HostEvent, "type">): Buffer =>
  Buffer.from(JSON.stringify({ type: "host_event", ...event }));
