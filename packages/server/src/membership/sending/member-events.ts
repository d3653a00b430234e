import type { ViewState } from "@tenure/protocol";
import type { MemberPages } from "../member-pages.ts";
import { PAGE_BYTES_MAX } from "../member-pages.ts";
import type { MembersRefresh } from "../members.ts";
import { type LocalNode, readerOf, tenantsOf } from "../node-connection.ts";
import { batchFrame, type ChangeFrame, singleFrames } from "./change-frames.ts";
import { ChangeLog, type NumberedChange } from "./change-log.ts";

/** A socket with more than this to send gets the next changes when it has sent all: they are then fewer and newer. */
export const UNSENT_BYTES_MAX = 64 * 1_024;

/**
 * Sends the members to connected node-units: the whole list as INIT, then the changes. No faster than a socket takes them:
 * what a slow one has missed it gets as one batch, or as a new list. Frames are written once for all node-units that serve
 * the same tenants and are equally far.
 */
export function createMemberEvents(pages: MemberPages) {
  const log = new ChangeLog();
  let view: ViewState = "settling";
  let written = new Map<string, readonly ChangeFrame[]>();

  function sendAll(node: LocalNode): void {
    node.stopSending();
    const { seq, view: sentView, stop } = pages.send(node.link, readerOf(node));
    node.stopSending = stop;
    node.sent.seq = seq;
    node.sent.view = sentView;
  }

  function sendChanges(node: LocalNode): void {
    const { sent, link } = node;
    while (!sent.isWaiting && node.isIntroduced) {
      const isViewChanged = sent.view !== view;
      if (sent.seq === log.last && !isViewChanged) return;
      if (link.unsentBytes() > UNSENT_BYTES_MAX) {
        sent.isWaiting = true;
        link.whenDrained(() => {
          sent.isWaiting = false;
          sendChanges(node);
        });
        return;
      }
      const changes = log.since(sent.seq);
      if (!changes || (isViewChanged && !node.readsBatches)) {
        sendAll(node);
        return;
      }
      for (const { frame, seq } of framesFor(node, changes)) {
        link.sendText(frame);
        sent.seq = seq;
      }
      sent.view = view;
    }
  }

  function framesFor(node: LocalNode, changes: readonly NumberedChange[]) {
    const tenants = tenantsOf(node);
    const after = node.sent.seq;
    const key = `${node.readsBatches} ${after} ${tenants.join(" ")}`;
    const frames =
      written.get(key) ??
      (node.readsBatches
        ? [batchFrame(changes, { after, view, tenants }, PAGE_BYTES_MAX)]
        : singleFrames(changes, { view, tenants }, PAGE_BYTES_MAX));
    written.set(key, frames);
    return frames;
  }

  return {
    sendAll,
    onRefresh(refresh: MembersRefresh, nodes: Iterable<LocalNode>): void {
      view = refresh.view;
      written = new Map();
      log.append(refresh.changes);
      for (const node of nodes) sendChanges(node);
    },
  };
}
