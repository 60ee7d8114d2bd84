import { JsonWriters, ReplyWriter } from '../../src/json/json-writers.js';
import { readDescriptors, TypeRegistry } from '../../src/schema/descriptors.js';
import { descriptorSet } from './descriptor-set.js';
import type { Facts } from './facts.js';
import type { Wire } from './wire.js';

/** Prints messages of the given facts as replies. */
export function replyPrinter(facts: Facts): (type: string, message: Wire | Uint8Array) => string {
  const writer = replyWriters(descriptorSet(facts));
  return (type, message) =>
    writer(type)
      .write(message instanceof Uint8Array ? message : message.finish())
      .toString();
}

/** The writers of a descriptor set's messages, by type name. */
export function replyWriters(descriptors: Uint8Array): (type: string) => ReplyWriter {
  const types = new TypeRegistry(readDescriptors(descriptors));
  const writers = new JsonWriters(types);
  return (type) => {
    const message = types.getMessage(type);
    if (!message) throw new Error(`There is no message ${type}`);
    return new ReplyWriter(writers, message);
  };
}
