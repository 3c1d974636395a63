"""Arguments and environment variables of SGLang on which no weights depend, or that are in a key
already. All others count: see `gpuwm.sglang.arguments`.

The tables were made by reading SGLang 0.5.16 to 0.5.23.
"""

from __future__ import annotations

# Globs. Arguments of `arguments.TABLE` count even if a glob matches them.
ARGUMENTS = (
    # what has a field of its own, or is a part of the configuration of the model
    *("model_path", "revision", "load_format", "model_loader_extra_config", "dtype"),
    *("quantization", "json_model_override_args", "model_impl", "model_config_parser"),
    *("context_length", "decrypted_*config_file", "device", "enable_lora", "tp_size", "pp_size"),
    *("dp_size", "ep_size", "dcp_size", "attn_cp_size", "attn_dp_size", "moe_dp_size"),
    # where the checkpoint is, and how its files are read
    *("trust_remote_code", "download_dir", "model_checksum", "delete_ckpt_after_loading"),
    *("weight_loader_*", "modelexpress_config", "remote_instance_weight_loader_*"),
    *("custom_weight_loader", "weight_cache_socket", "weight_cache_timeout", "engine_info_*"),
    # a draft is a version of its own
    *("speculative_draft_model_*", "speculative_draft_load_format", "speculative_num_steps"),
    *("speculative_accept_*", "speculative_use_*", "speculative_adaptive*"),
    *("speculative_ngram_*", "speculative_skip_dp_mlp_sync", "speculative_dspark_sps_*"),
    *("spec_trace_dir", "decoupled_spec_bind_*", "decoupled_spec_connect_*"),
    "decoupled_spec_rank",
    # one process, one run, one machine
    *("base_gpu_id", "gpu_id_step", "random_seed", "*watchdog_timeout", "sleep_on_idle"),
    *("use_ray", "custom_sigquit_handler", "numa_node", "gc_*", "mlx_enable_sampling"),
    *("nccl_port", "nnodes", "dist_*", "node_rank", "load_balance_method"),
    *("pp_max_micro_batch_size", "*_launch_port", "pp_async_batch_depth"),
    *("enable_dp_attention_local_control_broadcast", "enable_p2p_check"),
    # requests and answers
    *("host", "port", "fastapi_root_path", "grpc_*", "smg_*", "sidecar*", "enable_http*"),
    *("http2_*", "ssl_*", "enable_ssl_refresh", "*api_key", "served_model_name"),
    *("weight_version", "tokenizer_*", "detokenizer_*", "skip_tokenizer_init"),
    *("*_tokenizer_batch_*", "enable_dynamic_batch_tokenizer", "dynamic_batch_tokenizer_*"),
    *("skip_server_warmup", "warmups", "*chat_template*", "completion_template"),
    *("file_storage_path", "tool_*", "enable_cache_report", "reasoning_parser"),
    *("strip_thinking_cache", "enable_strict_thinking", "sampling_*", "asr_*"),
    *("preferred_sampling_params", "allow_auto_truncate", "stream_*", "batch_notify_size"),
    *("incremental_streaming_output", "enable_streaming_session", "constrained_json_*"),
    *("enable_response_store", "return_*", "enable_custom_logit_processor"),
    *("enable_return_hidden_states", "enable_return_aux_hidden_states", "grammar_backend"),
    *("aux_hidden_state_capture", "disable_outlines_disk_cache", "watermark_*"),
    "enable_watermark",
    # images, audio and video in requests
    *("enable_broadcast_mm_inputs_process", "enable_prefix_mm_cache", "mm_process*", "mm_io_*"),
    *("limit_mm_data_per_request", "*mm_global_cache*", "disable_fast_image_processor"),
    *("image_processor_backend", "mm_feature_transport", "keep_mm_feature_on_device"),
    *("allowed_media_domains", "media_url_*", "mm_preprocess_*", "trust_mm_content_hashes"),
    # adapters lie beside the weights
    *(
        "enable_lora_overlap_loading",
        "max_lora*",
        "max_loaded_loras",
        "lora_*",
        "experts_shared_outer_loras",
    ),
    # scheduling
    *("mem_fraction_static", "max_*_requests", "max_total_tokens", "chunked_prefill_size"),
    *("enable_dynamic_chunking", "max_prefill_tokens", "prefill_max_requests", "schedule_*"),
    *("*priority*", "retraction_policy", "page_size", "c128_page_size", "swa_*"),
    *("prefill_only_disable_kv_cache", "disable_chunked_prefix_cache"),
    *("disable_overlap_schedule", "num_continuous_decode_steps", "scheduler_recv_interval"),
    *("enable_mixed_chunk", "max_mamba_cache_size", "mamba_full_memory_ratio"),
    *("*prefill_delayer*", "min_free_slots_delay", "prefill_decode_interval*"),
    *("tbo_token_distribution_threshold", "enable_pdmux", "sm_group_num", "pdmux_config_path"),
    # caches of keys, values and states
    *("radix_*", "disable_radix_cache", "enable_page_major_kv_layout", "enable_unified_memory"),
    *("enable_session_radix_cache", "enable_hierarchical_cache", "hicache_*", "*hisparse*"),
    *("*lmcache*", "*flexkv*", "*unified_cache_*", "enable_linker_mla_dedup", "mamba_radix_*"),
    *("uses_mamba_radix_cache", "mamba_track_interval", "*int8_mamba*"),
    "mamba_max_states_per_path",
    # other roles and machines
    *("disaggregation_*", "num_reserved_decode_tokens", "optimistic_prefill_attempts"),
    *("encoder_transfer_backend", "encoder_urls", "encoder_bootstrap_port"),
    *("encoder_register_urls", "enable_adaptive_dispatch_to_encoder", "enable_pd_role_switch"),
    # graphs, compilation, and what kernels communicate with
    *("cuda_graph_*", "disable_*cuda_graph*", "enable_profile_cuda_graph", "enable_cudagraph_gc"),
    *("debug_cuda_graph", "enable_torch_compile*", "torch_compile_max_bs", "pre_warm_nccl"),
    *("disable_flashinfer_autotune", "flashinfer_autotune_*", "triton_attention_*"),
    *("enable_nccl_nvls", "enable_*symm_mem", "disable_custom_all_reduce", "enable_mscclpp"),
    *("*allreduce_fusion*", "enable_layerwise_nvtx_marker", "mooncake_ib_device"),
    # logs, figures and tests
    *("log_*", "uvicorn_*", "crash_dump_folder", "show_time_cost", "enable_metrics*"),
    *("enable_mfu_metrics", "load_*_interval", "load_publish_endpoint", "extra_metric_labels"),
    *("bucket_*", "*_tokens_buckets", "decode_log_interval", "enable_request_time_stats_logging"),
    *("kv_events_config", "*forward_pass_metrics*", "enable_trace", "trace_modules", "otlp_*"),
    *("export_metrics_*", "stat_loggers", "kv_canary*", "debug_tensor_dump_*", "forward_hooks"),
    *("msprobe_dump_config", "expert_distribution_*", "expert_balancedness_*"),
    "enable_expert_distribution_metrics",
    # What belongs to options that are refused. It does nothing without them.
    *("eplb_*", "elastic_ep_*", "kt_*", "offload_*", "ple_offload_*", "paged_experts_*"),
    *("enable_weights_cpu_backup", "enable_draft_weights_cpu_backup", "ep_join_*", "max_ep_size"),
)

# Environment variables that say how SGLang logs, is tested, schedules, transfers KV caches or finds
# its files. All others count that SGLang knows and whose value is not their default. These words
# are parts of names.
VARIABLES = (
    *("_LOG_", "_DEBUG_", "_TEST_", "_CI", "_PROFILE", "_PROFILER_", "_TRACE", "_CANARY_"),
    *("DISAGG", "HICACHE", "MOONCAKE", "_MORI_", "HUGEPAGE", "_ENCODER_", "_STAGING_", "_EXA_"),
    *("EXA_", "_PORT", "_HOST", "_TIMEOUT", "_RETRACT", "_SCHEDULER_", "_PREFILL_DELAYER_"),
    *("_CACHE_DIR", "_PLUGINS", "_PLATFORM", "_METRICS_", "_GRPC_", "_OTLP_", "_IPC", "_NUMA_"),
    *("_SIMULATE_ACC", "_CUDA_COREDUMP", "_CPU_AFFINITY", "_INIT_METHOD", "_MESSAGE_QUEUE_"),
    *("_RADIX_", "_MEM_CHECK", "_INBALANCE_", "_PYSPY_", "_TOOL", "_WARMUP", "_USE_CPU_ENGINE"),
    *("_EMPTY_CACHE", "_IS_FIRST_RANK", "_NEW_TOKEN", "SGLANG_ENABLE_TORCH_COMPILE"),
    *("_OUTLINES_", "_CUSTOM_ALL_REDUCE", "_BREAKABLE_CUDA_GRAPH", "_CUDA_GRAPH_"),
    *("SGLANG_RUN_ID", "SGLANG_DP_RANK"),  # of one run, and of one replica
    *("_BLOCK_NONZERO_RANK", "_LOCAL_IP_", "_GIT_COMMIT"),
    *("_LOGGING_", "_OLLAMA_", "_WORKERS", "_NSYS_", "_RINGBUFFER_", "_DETOKENIZER_"),
)
