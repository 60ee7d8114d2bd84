import { Controller, Get, Inject } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { ModelList } from '@sibyl/protocol';
import type { Models } from '../agent/model/models.js';
import { Public } from '../auth/public-route.js';

/** The models are an interface, which Nest cannot ask for by class. */
export const MODELS = Symbol('models');

@Public()
@Controller('models')
export class ModelsController {
  constructor(@Inject(MODELS) private readonly models: Models) {}

  @Get()
  @Describe({ summary: 'The models a message may ask for', reply: ModelList })
  list(): ModelList {
    return this.models.list();
  }
}
