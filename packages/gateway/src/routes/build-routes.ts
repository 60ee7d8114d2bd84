import type { DescMethod } from '@bufbuild/protobuf';
import { BindFault } from '../binding/bind-fault.js';
import { type BindRules, RequestBinder } from '../binding/request-binder.js';
import { DescriptorFault } from '../descriptors/descriptor-fault.js';
import { type HttpBinding, httpBindings } from '../descriptors/http-bindings.js';
import type { Descriptors } from '../descriptors/read-descriptors.js';
import { JsonWriters } from '../json/json-writers.js';
import { ReplyWriter } from '../json/reply-writer.js';
import type { ChainPrefix } from './chain-prefix.js';
import { PathTemplate } from './path-template.js';
import { Route } from './route.js';

export interface RouteSettings {
  readonly prefix: ChainPrefix;
  readonly served: ReadonlySet<string> | undefined;
  readonly rules: BindRules;
}

/** All routes the descriptors declare, in their order, and sentences on those that cannot be served. */
export function buildRoutes(descriptors: Descriptors, settings: RouteSettings) {
  const writers = new JsonWriters(descriptors.registry);
  const routes: Route[] = [];
  const notices: string[] = [];
  for (const method of descriptors.files.flatMap(methodsOf))
    for (const binding of httpBindings(method))
      try {
        routes.push(buildRoute(method, binding, writers, settings));
      } catch (cause) {
        if (!(cause instanceof DescriptorFault || cause instanceof BindFault)) throw cause;
        notices.push(`${method.parent.typeName}/${method.name} is left out: ${cause.message}`);
      }
  return { routes, notices };
}

function methodsOf(file: Descriptors['files'][number]): DescMethod[] {
  return file.services.flatMap((service) => service.methods);
}

function buildRoute(
  method: DescMethod,
  { httpMethod, template, body }: HttpBinding,
  writers: JsonWriters,
  { prefix, served, rules }: RouteSettings,
): Route {
  if (method.methodKind !== 'unary') throw new DescriptorFault('it is a stream');
  const path = new PathTemplate(template);
  return new Route(method, {
    httpMethod,
    path,
    template: prefix.show(template),
    isServed: served === undefined || served.has(method.parent.typeName),
    binder: new RequestBinder({ type: method.input, variables: path.variables, body }, rules),
    writer: new ReplyWriter(writers, method.output),
  });
}
